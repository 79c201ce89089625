"""Skipped times and single runs."""

from datetime import datetime

import pytest
from tests.fakes.schedules import ID
from tests.fakes.ticker import FakeTicker
from tests.fakes.tickets import NINE, after

from harebell.contract.errors import Conflict, InvalidInput
from harebell.contract.ids import RunKey
from harebell.contract.responses import ScheduleResponse
from harebell.domain.run_states import Reason, RunState, ScheduleState
from harebell.ticker.commands.manual_runs import MAX_SKIPPED_TIMES

EVERY = {"every": "30s", "start": "2026-11-20T09:00:00Z"}


@pytest.fixture
def ticker() -> FakeTicker:
    """Return a schedule with staged runs at nine and every half minute."""
    ticker = FakeTicker(NINE)
    ticker.put(EVERY)
    return ticker


def skip(ticker: FakeTicker, seconds: float) -> ScheduleResponse:
    response = ticker.send("schedule.skip", at=after(seconds))
    assert isinstance(response, ScheduleResponse)
    return response


def run_until(ticker: FakeTicker, until: float) -> list[datetime]:
    while ticker.now < after(until):
        ticker.run_due()
        ticker.wait(10).stage_all()
    ticker.run_due()
    return ticker.times_in(RunState.SUCCEEDED)


def test_skip_of_a_staged_run_unstages_the_run_with_its_reason(ticker: FakeTicker) -> None:
    response = skip(ticker.wait(1), 30)

    row = ticker.rows[RunKey(after(30), ID)]
    assert (response.status, row.state, row.reason) == ("skipped", RunState.SKIPPED, Reason.MANUAL)
    assert run_until(ticker, 90) == [NINE, after(60), after(90)]


@pytest.mark.requirement("ASK-10")
def test_skip_of_a_distant_time_applies_when_the_time_is_planned(ticker: FakeTicker) -> None:
    skip(ticker, 300)
    stored = ticker.record.skipped_times

    ran = run_until(ticker, 330)

    assert stored == (after(300),)
    assert (after(270) in ran, after(300) in ran, after(330) in ran) == (True, False, True)
    assert ticker.skipped_counts == {after(300): 1}
    assert ticker.record.skipped_times == ()


@pytest.mark.requirement("S06")
def test_skipped_time_does_not_count_towards_times() -> None:
    ticker = FakeTicker(NINE)
    ticker.put({**EVERY, "times": 3})

    skip(ticker, 30)
    skip(ticker, 90)

    assert run_until(ticker, 200) == [NINE, after(60), after(120)]
    assert ticker.record.state is ScheduleState.COMPLETED


def test_second_skip_of_the_same_time_changes_nothing(ticker: FakeTicker) -> None:
    skip(ticker, 300)

    assert skip(ticker, 300).status == "skipped"
    assert ticker.record.skipped_times == (after(300),)


def test_skip_rejects_a_time_that_the_recurrence_does_not_contain(ticker: FakeTicker) -> None:
    with pytest.raises(InvalidInput) as error:
        skip(ticker, 31)

    assert (error.value.code, error.value.field) == ("not_due", "at")


@pytest.mark.parametrize("state", [RunState.RUNNING, RunState.RETRYING, RunState.SUCCEEDED])
def test_skip_rejects_the_time_of_a_run_with_an_attempt(
    ticker: FakeTicker, state: RunState
) -> None:
    ticker.claim(NINE, started=True)
    if state is not RunState.RUNNING:
        ticker.complete(NINE, state)

    with pytest.raises(Conflict) as error:
        skip(ticker, 0)

    assert error.value.code == "too_late"


def test_skip_rejects_the_time_of_a_run_that_ended_during_a_pause(ticker: FakeTicker) -> None:
    ticker.claim(NINE)
    ticker.send("schedule.pause")
    ticker.complete(NINE)

    with pytest.raises(Conflict) as error:
        skip(ticker, 0)

    assert error.value.code == "too_late"


def test_skip_rejects_a_missed_time(ticker: FakeTicker) -> None:
    ticker.wait(600).stage_all()

    with pytest.raises(Conflict) as error:
        skip(ticker, 120)

    assert error.value.code == "too_late"


def test_skip_rejects_more_future_times_than_the_limit(ticker: FakeTicker) -> None:
    for k in range(MAX_SKIPPED_TIMES):
        skip(ticker, 300 + 30 * k)

    with pytest.raises(Conflict):
        skip(ticker, 300 + 30 * MAX_SKIPPED_TIMES)

    assert len(ticker.record.skipped_times) == MAX_SKIPPED_TIMES


def test_skipped_time_stays_skipped_after_a_pause_and_a_change(ticker: FakeTicker) -> None:
    skip(ticker, 30)
    skip(ticker, 300)

    ticker.wait(1).send("schedule.pause")
    ticker.wait(1).send("schedule.resume")
    ticker.wait(1).send("schedule.patch", set={"priority": 9})

    assert not {after(30), after(300)} & set(run_until(ticker, 330))


def test_skip_applies_to_a_paused_schedule(ticker: FakeTicker) -> None:
    ticker.run_due()
    ticker.wait(1).send("schedule.pause")

    skip(ticker, 30)
    ticker.send("schedule.resume")

    assert run_until(ticker, 60) == [NINE, after(60)]


def test_skip_of_a_one_shot_completes_the_schedule() -> None:
    ticker = FakeTicker(NINE)
    ticker.put({"at": after(600).isoformat()})

    skip(ticker, 600)

    assert run_until(ticker, 700) == []
    assert ticker.record.state is ScheduleState.COMPLETED


@pytest.mark.parametrize("verb", ["schedule.skip", "run.cancel"])
@pytest.mark.parametrize("rule", [{"from": "completion"}, {"until": "success"}])
def test_sequential_schedule_continues_after_its_awaited_run_is_cancelled(
    verb: str, rule: dict[str, str]
) -> None:
    ticker = FakeTicker(NINE)
    ticker.put({**EVERY, **rule})
    body = {"run_id": str(RunKey(NINE, ID))} if verb == "run.cancel" else {"at": NINE}

    ticker.wait(10).send(verb, **body)
    ticker.reconcile()

    assert ticker.record.awaited_run not in (None, NINE)
    assert ticker.staged_times == [ticker.record.awaited_run]
