"""The pages of the generated reference are those that the command writes."""

import xml.etree.ElementTree as ET

import pytest
from tests.tools.reference.pages import FOLDER, PAGES
from tests.tools.reference.schedule import MEANINGS, MEANINGS_IN
from tests.tools.reference.states import diagram

from harebell.domain.run_states import TRANSITIONS, RunState


@pytest.mark.parametrize("name", PAGES)
def test_reference_page_is_up_to_date(name: str) -> None:
    written = (FOLDER / name).read_text(encoding="utf-8")

    assert written == PAGES[name](), "Run `.venv/bin/python -m tests.tools.reference`."


def test_every_meaning_of_a_field_is_on_the_page() -> None:
    page = (FOLDER / "reference/schedule-fields.md").read_text(encoding="utf-8")

    assert [each for each in [*MEANINGS.values(), *MEANINGS_IN.values()] if each not in page] == []


def test_diagram_has_a_box_for_each_state_and_a_curve_for_each_transition() -> None:
    root = ET.fromstring(diagram())  # noqa: S314  # our own text
    names = [each.text for each in root.iter("{http://www.w3.org/2000/svg}text")]
    curves = [
        each for each in root.iter("{http://www.w3.org/2000/svg}path") if "Q" in each.get("d", "")
    ]

    assert names == [state.value for state in RunState]
    assert len(curves) == sum(before != after for before, after in TRANSITIONS)


def test_page_contains_each_command_with_its_options() -> None:
    page = (FOLDER / "reference/command-line.md").read_text(encoding="utf-8")

    assert "## harebell dlq replays abort" in page
    assert "`--abort-on-failure-ratio" in page
    assert "## harebell dlq drop" not in page  # a hidden alias
