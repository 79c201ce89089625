"""States rebuilt from attempts and reasons, and compared."""

from dataclasses import replace
from datetime import timedelta

import pytest
from tests.fakes.audit import Audited, a_run
from tests.fakes.tickets import NINE, after

from harebell.audit.model.records import Attempt, FindingKind, Run
from harebell.audit.model.state_checks import (
    STATES_WITHOUT_ATTEMPT,
    STATES_WITHOUT_SUCCESS,
    find_inconsistent,
    find_inconsistent_schedule,
    find_duplicated,
    possible_states,
)
from harebell.domain.retry import ATTEMPTS_EXHAUSTED
from harebell.domain.run_states import Reason, RunState, ScheduleState

EVERY = {"every": "20s", "start": "2026-11-20T09:00:00Z"}


@pytest.fixture
def ticking() -> Audited:
    ticking = Audited(NINE)
    ticking.put(EVERY)
    return ticking


def tried(*outcomes: str, replay_number: int = 0) -> tuple[Attempt, ...]:
    return tuple(
        Attempt(replay_number, number, outcome, NINE) for number, outcome in enumerate(outcomes, 1)
    )


def run_after(*outcomes: str, running: bool = False, reason: str | None = None) -> Run:
    attempt = len(outcomes) + running
    seq = 1 + 2 * len(outcomes) + running
    return a_run(NINE, attempts=tried(*outcomes), attempt=attempt, reason=reason, seq=seq)


@pytest.mark.requirement("S90")
@pytest.mark.parametrize(
    ("run", "state"),
    [
        (run_after(), RunState.STAGED),
        (run_after(running=True), RunState.RUNNING),
        (run_after("succeeded"), RunState.SUCCEEDED),
        (run_after("failed"), RunState.RETRYING),
        (run_after("failed", running=True), RunState.RUNNING),
        (run_after("failed", "lease_expired", "succeeded"), RunState.SUCCEEDED),
        (run_after("failed", reason=ATTEMPTS_EXHAUSTED), RunState.DEAD),
        (run_after("failed", reason="http_404"), RunState.DEAD),
        (run_after("failed", reason="expired"), RunState.EXPIRED),
        (run_after("cancelled", reason="replaced"), RunState.CANCELLED),
        (run_after(reason="superseded"), RunState.CANCELLED),
        (run_after(reason="catch_up"), RunState.SKIPPED),
        (run_after("lease_expired", reason="unknown_outcome"), RunState.UNRESOLVED),
        (run_after("lease_expired", reason="requested"), RunState.SUCCEEDED),
    ],
)
def test_the_state_follows_from_attempts_and_reason(run: Run, state: RunState) -> None:
    assert state in possible_states(run)


@pytest.mark.requirement("S90")
def test_every_reason_and_every_state_can_be_rebuilt() -> None:
    known = STATES_WITHOUT_ATTEMPT.keys() | STATES_WITHOUT_SUCCESS.keys()
    states = set().union(*STATES_WITHOUT_ATTEMPT.values(), *STATES_WITHOUT_SUCCESS.values())

    assert known == {None, *Reason}
    assert states | {RunState.RUNNING, RunState.SUCCEEDED, RunState.DEAD} == set(RunState)


@pytest.mark.requirement("S90")
@pytest.mark.parametrize(
    ("run", "words"),
    [
        (replace(run_after("succeeded"), state="dead"), "lead to succeeded"),
        (replace(run_after("failed"), state="succeeded"), "lead to retrying"),
        (replace(run_after("succeeded", "failed"), state="staged"), "lead to retrying"),
        (replace(run_after(), state="skipped"), "lead to staged"),
        (replace(run_after("failed"), attempt=3), "lead to no state"),
        (replace(run_after("failed"), state="retrying", outcome="succeeded"), "its outcome"),
        (replace(run_after("failed"), state="retrying", outcome="failed", seq=2), "seq is 2"),
        (
            replace(run_after("failed", "failed"), attempts=tried("failed", "failed")[::-1]),
            "numbered",
        ),
    ],
)
def test_a_state_that_its_record_does_not_lead_to_is_found(
    ticking: Audited, run: Run, words: str
) -> None:
    assert any(words in each.text for each in find_inconsistent(ticking.schedule, run))


@pytest.mark.requirement("S90")
def test_a_replayed_run_is_judged_by_its_series(ticking: Audited) -> None:
    again = replace(
        run_after("failed", "succeeded"),
        attempts=(*tried("failed", "failed"), *tried("succeeded", replay_number=1)),
        replay_number=1,
        attempt=1,
        seq=8,
        state=RunState.SUCCEEDED,
        outcome="succeeded",
    )

    assert list(find_inconsistent(ticking.schedule, again)) == []
    assert list(find_duplicated(ticking.schedule, again)) == []


@pytest.mark.parametrize("outcomes", [("succeeded", "succeeded"), ("succeeded", "failed")])
def test_a_run_that_goes_on_after_its_success_is_doubled(
    ticking: Audited, outcomes: tuple[str, ...]
) -> None:
    (found,) = find_duplicated(ticking.schedule, run_after(*outcomes))

    assert found.kind is FindingKind.DUPLICATED


def test_a_schedule_as_planned_agrees(ticking: Audited) -> None:
    assert list(find_inconsistent_schedule(ticking.schedule)) == []


def test_a_schedule_that_would_sleep_past_its_instant_is_found(ticking: Audited) -> None:
    assert ticking.record.next_at is not None
    asleep = replace(ticking.schedule, next_at=ticking.record.next_at + timedelta(hours=1))

    assert "is not looked at before" in next(find_inconsistent_schedule(asleep)).text


def test_one_with_times_left_is_found_though_a_change_waits_and_one_without_is_not() -> None:
    ticking = Audited(NINE)
    ticking.put({**EVERY, "times": 7})
    ticking.send("schedule.patch", set={"priority": 9}, effective_at=after(7200))
    asleep = replace(ticking.schedule, next_at=NINE + timedelta(hours=1))

    assert asleep.dispatched < 7
    assert "is not looked at before" in next(find_inconsistent_schedule(asleep)).text
    assert list(find_inconsistent_schedule(replace(asleep, dispatched=7))) == []


def test_a_version_that_is_not_the_newest_in_force_is_found(ticking: Audited) -> None:
    ticking.put(EVERY, expected_version="any", priority=9)

    well = ticking.schedule
    for damaged in (
        replace(well, version=1),
        replace(well, shown=1),
        replace(well, version=3),
    ):
        assert "version 2 is in force" in next(find_inconsistent_schedule(damaged)).text


def test_a_completed_schedule_that_still_owes_is_found(ticking: Audited) -> None:
    over = replace(ticking.schedule, state=ScheduleState.COMPLETED, next_at=None)

    assert "it is completed" in next(find_inconsistent_schedule(over)).text


def test_so_many_times_may_be_over_before_the_timetable_is() -> None:
    ticking = Audited(NINE)
    ticking.put({**EVERY, "times": 2})
    ticking.stage_all()

    assert ticking.record.state is ScheduleState.COMPLETED
    assert list(find_inconsistent_schedule(ticking.schedule)) == []
    assert after(20) in ticking.staged_times
