"""The files of the stack: content, permissions and damage."""

from pathlib import Path

import pytest

from harebell.dev.errors import StateUnreadable
from harebell.dev.state import STATE_FILE, load_plan, load_state, save_state


def test_new_folder_has_a_random_password(tmp_path: Path) -> None:
    assert load_state(tmp_path).password != load_state(tmp_path).password
    assert load_plan(tmp_path) is None


def test_saved_state_is_loaded_and_private(tmp_path: Path) -> None:
    state = load_state(tmp_path).model_copy(update={"ports": {"amqp": 20_001}})

    save_state(tmp_path, state)

    assert load_state(tmp_path) == state
    assert (tmp_path / STATE_FILE).stat().st_mode & 0o077 == 0
    assert [path.name for path in tmp_path.iterdir()] == [STATE_FILE]


@pytest.mark.parametrize(
    "text", ["", "{", '{"ports": {}}', '{"password": "x", "ports": {"a": "b"}}']
)
def test_damaged_file_is_named_in_the_error(tmp_path: Path, text: str) -> None:
    (tmp_path / STATE_FILE).write_text(text)

    with pytest.raises(StateUnreadable, match=STATE_FILE):
        load_state(tmp_path)
