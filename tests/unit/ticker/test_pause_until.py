"""Pauses with an end, and the catch-up policy after them."""

import pytest
from tests.fakes.ticker import FakeTicker
from tests.fakes.tickets import NINE, after

from harebell.contract.commands import ScheduleResume
from harebell.contract.errors import InvalidInput
from harebell.contract.message import parse
from harebell.contract.responses import ScheduleResponse
from harebell.domain.run_states import Reason, RunState, ScheduleState

EVERY = {"every": "30s", "start": "2026-11-20T09:00:00Z"}


def paused(seconds: float, **policies: object) -> FakeTicker:
    """Return a schedule that is paused from 9:00:10 until `seconds` after nine."""
    ticker = FakeTicker(NINE)
    ticker.put(EVERY, **policies)
    ticker.run_due()
    ticker.wait(10).send("schedule.pause", until=after(seconds))
    return ticker


def run_until(ticker: FakeTicker, until: float) -> None:
    while ticker.now < after(until):
        ticker.wait(5).stage_all()
        ticker.run_due()


@pytest.mark.requirement("S14")
def test_pause_with_an_end_stops_runs_until_then_and_ends_automatically() -> None:
    ticker = paused(200)

    run_until(ticker, 195)
    before = (ticker.record.state, ticker.times_in(RunState.SUCCEEDED), ticker.staged_times)
    run_until(ticker, 250)

    assert before == (ScheduleState.PAUSED, [NINE], [])
    assert ticker.record.state is ScheduleState.ACTIVE
    assert ticker.times_in(RunState.SUCCEEDED)[-2:] == [after(210), after(240)]


@pytest.mark.requirement("S14", "ASK-6")
@pytest.mark.parametrize(
    ("mode", "caught_up"), [("none", []), ("one", [180]), ("all", [30, 60, 90, 120, 150, 180])]
)
def test_catch_up_policy_decides_about_the_times_of_a_pause_with_an_end(
    mode: str, caught_up: list[float]
) -> None:
    ticker = paused(200, catch_up={"mode": mode})

    run_until(ticker, 300)

    ran = [time for time in ticker.times_in(RunState.SUCCEEDED) if NINE < time < after(200)]
    assert ran == [after(seconds) for seconds in caught_up]
    assert sum(ticker.skipped_counts.values()) == 6 - len(caught_up)


@pytest.mark.requirement("S14")
def test_time_at_the_end_of_a_pause_is_not_missed() -> None:
    ticker = paused(90, catch_up={"mode": "none"})

    run_until(ticker, 130)

    assert ticker.times_in(RunState.SUCCEEDED) == [NINE, after(90), after(120)]


def test_resume_ends_a_pause_before_its_end() -> None:
    ticker = paused(600)

    response = ticker.wait(5).send("schedule.resume")
    run_until(ticker, 70)

    assert response.state == "active"
    assert ticker.times_in(RunState.SUCCEEDED) == [NINE, after(30), after(60)]


def test_second_pause_replaces_the_end_of_the_first() -> None:
    ticker = paused(100)

    ticker.send("schedule.pause", until=after(200))
    run_until(ticker, 190)
    longer = ticker.record.state
    ticker.send("schedule.pause")
    run_until(ticker, 900)

    assert (longer, ticker.record.state) == (ScheduleState.PAUSED, ScheduleState.PAUSED)


def test_pause_with_a_past_end_ends_at_once() -> None:
    ticker = paused(5)

    run_until(ticker, 40)

    assert ticker.record.state is ScheduleState.ACTIVE
    assert ticker.times_in(RunState.SUCCEEDED) == [NINE, after(30)]


def test_change_during_a_pause_keeps_its_end() -> None:
    ticker = paused(100)

    ticker.send("schedule.patch", set={"priority": 9})
    run_until(ticker, 130)

    assert ticker.record.state is ScheduleState.ACTIVE
    assert ticker.times_in(RunState.SUCCEEDED)[-1] == after(120)


def test_schedule_whose_end_is_during_a_pause_completes_after_it() -> None:
    ticker = FakeTicker(NINE)
    ticker.put({**EVERY, "end": "2026-11-20T09:01:00Z"}, catch_up={"mode": "none"})
    ticker.send("schedule.pause", until=after(300))

    run_until(ticker, 400)

    assert ticker.record.state is ScheduleState.COMPLETED
    assert ticker.times_in(RunState.SUCCEEDED) == []


@pytest.mark.requirement("S14")
def test_resumed_schedule_still_waits_for_its_awaited_run() -> None:
    ticker = FakeTicker(NINE)
    ticker.put({"every": "30s", "from": "completion", "start": "2026-11-20T09:00:00Z"})
    ticker.claim(NINE, started=True)

    ticker.wait(1).send("schedule.pause")
    response = ticker.wait(300).send("schedule.resume")

    assert isinstance(response, ScheduleResponse)
    assert (ticker.record.awaited_run, ticker.staged_times) == (NINE, [])


@pytest.mark.requirement("S101")
def test_resume_is_rejected_for_a_blocked_schedule() -> None:
    ticker = FakeTicker(NINE)
    ticker.put(EVERY, on_unknown="block")
    ticker.claim(NINE, started=True)
    ticker.complete(NINE, RunState.UNRESOLVED)
    ticker.reconcile()

    with pytest.raises(Exception, match="not blocked") as error:
        ticker.send("schedule.resume")

    assert getattr(error.value, "code", None) == "not_paused"


def test_resume_command_needs_exactly_one_reference() -> None:
    bodies: list[dict[str, object]] = [
        {},
        {"key": "a", "select": {"tag": "b"}},
        {"select": {}},
    ]
    for body in bodies:
        with pytest.raises(InvalidInput):
            parse(ScheduleResume, body)


def test_unstaged_run_has_the_reason_paused() -> None:
    ticker = paused(200)

    reasons = {row.reason for row in ticker.rows.values() if row.state is RunState.CANCELLED}
    assert reasons == {Reason.PAUSED}
