"""Backfill: runs that a timetable had, made up for by hand; what is on record stays as it is."""

import pytest
from tests.fakes.schedules import ID
from tests.fakes.ticker import FakeTicker
from tests.fakes.tickets import NINE, after

from harebell.contract.errors import InvalidInput
from harebell.contract.ids import RunKey
from harebell.contract.responses import ScheduleResponse
from harebell.domain.run_states import RunState, ScheduleState
from harebell.ticker.commands.handlers import apply_command
from harebell.ticker.model.run_rows import manual_run_row

EVERY = {"every": "30s", "start": "2026-11-20T09:00:00Z"}
MODES = {"catch_up": {"mode": "none"}}


@pytest.fixture
def ticking() -> FakeTicker:
    """Created ten minutes after its timetable began: what lies before was never owed."""
    ticking = FakeTicker(after(600))
    ticking.put(EVERY, **MODES)
    return ticking


def backfill(ticking: FakeTicker, first: float, last: float, **more: object) -> ScheduleResponse:
    fields = {"from": after(first), "to": after(last), **more}
    answer = ticking.send("schedule.backfill", **fields)
    assert isinstance(answer, ScheduleResponse)
    return answer


def run_ids(*seconds: float) -> list[str]:
    return [str(RunKey(after(each), ID)) for each in seconds]


def test_both_ends_belong_to_it(ticking: FakeTicker) -> None:
    answer = backfill(ticking, 30, 120)

    assert (answer.status, answer.runs) == ("backfilled", run_ids(30, 60, 90, 120))
    assert ticking.staged_times[:4] == [after(30), after(60), after(90), after(120)]


@pytest.mark.requirement("S78")
def test_a_run_made_up_for_is_the_run_of_its_instant(ticking: FakeTicker) -> None:
    backfill(ticking, 25, 35)

    row = ticking.rows[RunKey(after(30), ID)]
    assert (row.counts, row.version, row.due_at) == (False, 1, after(30))


def test_shown_first_it_changes_nothing(ticking: FakeTicker) -> None:
    before = (ticking.stored_record, dict(ticking.rows))

    answer = backfill(ticking, 0, 90, dry_run=True)

    assert (answer.status, answer.runs) == ("previewed", run_ids(0, 30, 60, 90))
    assert (ticking.stored_record, ticking.rows) == before


def test_more_runs_than_the_bound_are_refused_and_none_is_made(ticking: FakeTicker) -> None:
    with pytest.raises(InvalidInput) as refused:
        backfill(ticking, 0, 120, max=4)

    assert (refused.value.code, refused.value.field) == ("too_many", "max")
    assert ticking.staged_times[0] >= after(600)
    assert backfill(ticking, 0, 120, max=5).runs == run_ids(0, 30, 60, 90, 120)


def test_what_is_still_to_come_is_refused(ticking: FakeTicker) -> None:
    with pytest.raises(InvalidInput) as refused:
        backfill(ticking, 570, 630)

    assert refused.value.field == "to"


def test_where_the_timetable_has_nothing_nothing_is_made(ticking: FakeTicker) -> None:
    assert backfill(ticking, 31, 59).runs == []


def test_what_is_made_up_for_does_not_count_towards_times() -> None:
    ticking = FakeTicker(after(600))
    ticking.put({**EVERY, "times": 2})

    backfill(ticking, 0, 60)
    for _ in range(20):
        ticking.run_due()
        ticking.wait(10).stage_all()

    ran = ticking.times_in(RunState.SUCCEEDED)
    assert ran == [NINE, after(30), after(60), after(600), after(630)]
    assert ticking.record.state is ScheduleState.COMPLETED


def test_what_is_made_up_for_never_expires_on_its_way(ticking: FakeTicker) -> None:
    ticking.send("schedule.patch", set={"expires_after": "10s"})
    book = ticking.load_unit()
    apply_command(
        book, ticking.context_of("schedule.backfill", {"from": after(0), "to": after(30)})
    )

    assert [manual_run_row(extra).expires_at for extra in book.manual_runs] == [None, None]
