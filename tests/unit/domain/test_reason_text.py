"""The list of reasons is closed: each has words, and stands in the documents."""

from pathlib import Path

import pytest

from harebell.domain.preview import NoteKind
from harebell.domain.reason_text import REASON_TEXT, SCHEDULE_STATE_TEXT, reason_text
from harebell.domain.run_states import Reason, ScheduleState
from harebell.intake.queries.why import Verdict

PAGE = Path(__file__).parents[3] / "docs/architecture/preview-and-why.md"
ROWS = {line.split("`")[1] for line in PAGE.read_text().splitlines() if line.startswith("| `")}


@pytest.mark.requirement("ASK-1")
@pytest.mark.parametrize("reason", Reason)
def test_each_reason_has_a_text_and_a_row_in_the_page(reason: Reason) -> None:
    """Ask 1."""
    assert reason_text(reason)
    assert (reason, REASON_TEXT[reason]) == (reason, reason_text(reason.value))
    assert reason.value in ROWS


@pytest.mark.parametrize("state", ScheduleState)
def test_each_schedule_state_has_a_text_and_a_row_in_the_page(state: ScheduleState) -> None:
    assert SCHEDULE_STATE_TEXT[state]
    assert state.value in ROWS


@pytest.mark.parametrize("each", [*Verdict, *NoteKind])
def test_each_verdict_and_note_has_a_row_in_the_page(each: str) -> None:
    assert each in ROWS


def test_error_code_has_no_reason_text() -> None:
    assert reason_text("http_503") is None
    assert reason_text(None) is None
