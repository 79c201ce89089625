"""Backfill: manual runs for past times of a recurrence."""

import pytest
from tests.fakes.schedules import ID
from tests.fakes.ticker import FakeTicker
from tests.fakes.tickets import NINE, after

from harebell.contract.errors import Conflict, InvalidInput
from harebell.contract.ids import RunKey
from harebell.contract.responses import ScheduleResponse
from harebell.domain.run_states import RunState, ScheduleState
from harebell.ticker.commands.handlers import apply_command
from harebell.ticker.model.request import FoundTimes
from harebell.ticker.model.run_rows import manual_run_row

EVERY = {"every": "30s", "start": "2026-11-20T09:00:00Z"}
NO_CATCH_UP = {"catch_up": {"mode": "none"}}


@pytest.fixture
def ticker() -> FakeTicker:
    """Return a schedule that was created ten minutes after the start of its recurrence."""
    ticker = FakeTicker(after(600))
    ticker.put(EVERY, **NO_CATCH_UP)
    return ticker


def backfill(ticker: FakeTicker, first: float, last: float, **options: object) -> ScheduleResponse:
    fields = {"from": after(first), "to": after(last), **options}
    response = ticker.send("schedule.backfill", **fields)
    assert isinstance(response, ScheduleResponse)
    return response


def run_ids(*seconds: float) -> list[str]:
    return [str(RunKey(after(each), ID)) for each in seconds]


def test_backfill_includes_both_ends_of_the_range(ticker: FakeTicker) -> None:
    response = backfill(ticker, 30, 120)

    assert (response.status, response.runs) == ("backfilled", run_ids(30, 60, 90, 120))
    assert ticker.staged_times[:4] == [after(30), after(60), after(90), after(120)]


@pytest.mark.requirement("S78")
def test_backfill_stages_a_manual_run_with_the_scheduled_time(ticker: FakeTicker) -> None:
    backfill(ticker, 25, 35)

    row = ticker.rows[RunKey(after(30), ID)]
    assert (row.origin, row.version, row.due_at) == ("backfill", 1, after(30))


def test_dry_run_of_a_backfill_changes_nothing(ticker: FakeTicker) -> None:
    before = (ticker.stored_record, dict(ticker.rows))

    response = backfill(ticker, 0, 90, dry_run=True)

    assert (response.status, response.runs) == ("previewed", run_ids(0, 30, 60, 90))
    assert (ticker.stored_record, ticker.rows) == before


def test_backfill_rejects_more_runs_than_max_and_stages_none(ticker: FakeTicker) -> None:
    with pytest.raises(InvalidInput) as error:
        backfill(ticker, 0, 120, max=4)

    assert (error.value.code, error.value.field) == ("too_many", "max")
    assert ticker.staged_times[0] >= after(600)
    assert backfill(ticker, 0, 120, max=5).runs == run_ids(0, 30, 60, 90, 120)


def test_backfill_rejects_a_range_that_contains_future_times(ticker: FakeTicker) -> None:
    with pytest.raises(InvalidInput) as error:
        backfill(ticker, 570, 630)

    assert error.value.field == "to"


def test_backfill_of_a_range_without_times_stages_nothing(ticker: FakeTicker) -> None:
    assert backfill(ticker, 31, 59).runs == []


def test_backfilled_runs_do_not_count_towards_times() -> None:
    ticker = FakeTicker(after(600))
    ticker.put({**EVERY, "times": 2})

    backfill(ticker, 0, 60)
    for _ in range(20):
        ticker.run_due()
        ticker.wait(10).stage_all()

    ran = ticker.times_in(RunState.SUCCEEDED)
    assert ran == [NINE, after(30), after(60), after(600), after(630)]
    assert ticker.record.state is ScheduleState.COMPLETED


def test_backfilled_runs_do_not_expire(ticker: FakeTicker) -> None:
    ticker.send("schedule.patch", set={"expires_after": "10s"})
    unit = ticker.load_unit()
    apply_command(unit, ticker.context_of("schedule.backfill", {"from": after(0), "to": after(30)}))

    assert [manual_run_row(manual_run).expires_at for manual_run in unit.manual_runs] == [
        None,
        None,
    ]


def test_times_from_before_the_transaction_are_those_of_the_version(ticker: FakeTicker) -> None:
    unit = ticker.load_unit()
    context = ticker.context_of("schedule.backfill", {"from": after(0), "to": after(30)})
    found = FoundTimes(version=1, times=[after(30)])

    response = apply_command(unit, context._replace(found_times=found))

    assert isinstance(response, ScheduleResponse)
    assert response.runs == run_ids(30)
    with pytest.raises(Conflict):
        apply_command(unit, context._replace(found_times=found._replace(version=2)))
