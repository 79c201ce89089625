"""What is remembered comes back, only its owner can read it, and damage is named."""

from pathlib import Path

import pytest

from harebell.dev.errors import StateUnreadable
from harebell.dev.state import STATE_FILE, load_plan, load_state, save_state


def test_a_new_directory_gets_a_password_of_its_own(tmp_path: Path) -> None:
    assert load_state(tmp_path).password != load_state(tmp_path).password
    assert load_plan(tmp_path) is None


def test_what_was_saved_comes_back_and_is_private(tmp_path: Path) -> None:
    state = load_state(tmp_path).model_copy(update={"ports": {"amqp": 20_001}})

    save_state(tmp_path, state)

    assert load_state(tmp_path) == state
    assert (tmp_path / STATE_FILE).stat().st_mode & 0o077 == 0
    assert [path.name for path in tmp_path.iterdir()] == [STATE_FILE]


@pytest.mark.parametrize(
    "text", ["", "{", '{"ports": {}}', '{"password": "x", "ports": {"a": "b"}}']
)
def test_a_damaged_file_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / STATE_FILE).write_text(text)

    with pytest.raises(StateUnreadable, match=STATE_FILE):
        load_state(tmp_path)
