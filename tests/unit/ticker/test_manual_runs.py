"""Single instants that a person takes out, makes up for, or says the end of."""

from datetime import datetime

import pytest
from tests.fakes.schedules import ID
from tests.fakes.ticker import FakeTicker
from tests.fakes.tickets import NINE, after

from harebell.contract.errors import Conflict, InvalidInput
from harebell.contract.ids import RunKey
from harebell.contract.responses import ScheduleResponse
from harebell.domain.run_states import Reason, RunState, ScheduleState
from harebell.ticker.commands.manual_runs import MAX_SKIPS

EVERY = {"every": "30s", "start": "2026-11-20T09:00:00Z"}


@pytest.fixture
def ticking() -> FakeTicker:
    """Runs staged at nine, and every half minute."""
    ticking = FakeTicker(NINE)
    ticking.put(EVERY)
    return ticking


def skip(ticking: FakeTicker, seconds: float) -> ScheduleResponse:
    answer = ticking.send("schedule.skip", at=after(seconds))
    assert isinstance(answer, ScheduleResponse)
    return answer


def carry_on(ticking: FakeTicker, until: float) -> list[datetime]:
    while ticking.now < after(until):
        ticking.run_due()
        ticking.wait(10).stage_all()
    ticking.run_due()
    return ticking.times_in(RunState.SUCCEEDED)


def test_a_staged_run_that_is_taken_out_never_runs_and_says_why(ticking: FakeTicker) -> None:
    answer = skip(ticking.wait(1), 30)

    row = ticking.rows[RunKey(after(30), ID)]
    assert (answer.status, row.state, row.reason) == ("skipped", RunState.SKIPPED, Reason.MANUAL)
    assert carry_on(ticking, 90) == [NINE, after(60), after(90)]


@pytest.mark.requirement("ASK-10")
def test_an_instant_far_ahead_is_taken_out_when_it_comes(ticking: FakeTicker) -> None:
    skip(ticking, 300)
    noted = ticking.record.skipped_times

    ran = carry_on(ticking, 330)

    assert noted == (after(300),)
    assert (after(270) in ran, after(300) in ran, after(330) in ran) == (True, False, True)
    assert ticking.skipped_counts == {after(300): 1}
    assert ticking.record.skipped_times == ()


@pytest.mark.requirement("S06")
def test_what_is_taken_out_does_not_count_towards_times() -> None:
    ticking = FakeTicker(NINE)
    ticking.put({**EVERY, "times": 3})

    skip(ticking, 30)
    skip(ticking, 90)

    assert carry_on(ticking, 200) == [NINE, after(60), after(120)]
    assert ticking.record.state is ScheduleState.COMPLETED


def test_taking_out_the_same_instant_twice_is_taking_it_out_once(ticking: FakeTicker) -> None:
    skip(ticking, 300)

    assert skip(ticking, 300).status == "skipped"
    assert ticking.record.skipped_times == (after(300),)


def test_what_is_no_instant_of_the_timetable_cannot_be_taken_out(ticking: FakeTicker) -> None:
    with pytest.raises(InvalidInput) as refused:
        skip(ticking, 31)

    assert (refused.value.code, refused.value.field) == ("not_due", "at")


@pytest.mark.parametrize("state", [RunState.RUNNING, RunState.RETRYING, RunState.SUCCEEDED])
def test_what_has_begun_cannot_be_taken_out(ticking: FakeTicker, state: RunState) -> None:
    ticking.claim(NINE, started=True)
    if state is not RunState.RUNNING:
        ticking.complete(NINE, state)

    with pytest.raises(Conflict) as refused:
        skip(ticking, 0)

    assert refused.value.code == "too_late"


def test_an_instant_that_was_passed_over_cannot_be_taken_out(ticking: FakeTicker) -> None:
    ticking.wait(600).stage_all()

    with pytest.raises(Conflict) as refused:
        skip(ticking, 120)

    assert refused.value.code == "too_late"


def test_only_so_many_instants_are_taken_out_ahead_of_time(ticking: FakeTicker) -> None:
    for k in range(MAX_SKIPS):
        skip(ticking, 300 + 30 * k)

    with pytest.raises(Conflict):
        skip(ticking, 300 + 30 * MAX_SKIPS)

    assert len(ticking.record.skipped_times) == MAX_SKIPS


def test_what_was_taken_out_stays_out_through_a_pause_and_a_change(ticking: FakeTicker) -> None:
    skip(ticking, 30)
    skip(ticking, 300)

    ticking.wait(1).send("schedule.pause")
    ticking.wait(1).send("schedule.resume")
    ticking.wait(1).send("schedule.patch", set={"priority": 9})

    assert not {after(30), after(300)} & set(carry_on(ticking, 330))


def test_an_instant_of_a_paused_schedule_is_taken_out_too(ticking: FakeTicker) -> None:
    ticking.run_due()
    ticking.wait(1).send("schedule.pause")

    skip(ticking, 30)
    ticking.send("schedule.resume")

    assert carry_on(ticking, 60) == [NINE, after(60)]


def test_a_skipped_one_shot_is_completed() -> None:
    ticking = FakeTicker(NINE)
    ticking.put({"at": after(600).isoformat()})

    skip(ticking, 600)

    assert carry_on(ticking, 700) == []
    assert ticking.record.state is ScheduleState.COMPLETED


@pytest.mark.parametrize("verb", ["schedule.skip", "run.cancel"])
@pytest.mark.parametrize("rule", [{"from": "completion"}, {"until": "success"}])
def test_a_schedule_that_waited_for_a_run_that_is_taken_out_goes_on(
    verb: str, rule: dict[str, str]
) -> None:
    ticking = FakeTicker(NINE)
    ticking.put({**EVERY, **rule})
    body = {"run_id": str(RunKey(NINE, ID))} if verb == "run.cancel" else {"at": NINE}

    ticking.wait(10).send(verb, **body)
    ticking.reconcile()

    assert ticking.record.awaited_run not in (None, NINE)
    assert ticking.staged_times == [ticking.record.awaited_run]
