"""Tests of the states that attempts, reasons and versions imply, against the rows."""

from dataclasses import replace
from datetime import timedelta

import pytest
from tests.fakes.audit import AuditedTicker, attempt_row, run_row
from tests.fakes.tickets import NINE, after

from harebell.audit.model.records import Attempt, FindingKind, Run
from harebell.audit.model.state_checks import (
    STATES_WITHOUT_ATTEMPT,
    STATES_WITHOUT_SUCCESS,
    find_duplicated,
    find_inconsistent,
    find_inconsistent_schedule,
    possible_states,
)
from harebell.domain.retry import ATTEMPTS_EXHAUSTED
from harebell.domain.run_states import Reason, RunState, ScheduleState

EVERY = {"every": "20s", "start": "2026-11-20T09:00:00Z"}


@pytest.fixture
def ticker() -> AuditedTicker:
    ticker = AuditedTicker(NINE)
    ticker.put(EVERY)
    return ticker


def attempts(*outcomes: str, replay_number: int = 0) -> tuple[Attempt, ...]:
    return tuple(
        attempt_row(number, outcome, NINE, replay_number=replay_number)
        for number, outcome in enumerate(outcomes, 1)
    )


def run_after(*outcomes: str, running: bool = False, reason: str | None = None) -> Run:
    """A run with one completed attempt for each outcome."""
    return run_row(
        NINE,
        attempts=attempts(*outcomes),
        attempt=len(outcomes) + running,
        reason=reason,
        seq=1 + 2 * len(outcomes) + running,
    )


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
        (run_after(reason="missed"), RunState.SKIPPED),
        (run_after("lease_expired", reason="unknown_outcome"), RunState.UNRESOLVED),
        (run_after("lease_expired", reason="manual"), RunState.SUCCEEDED),
    ],
)
def test_state_follows_from_attempts_and_reason(run: Run, state: RunState) -> None:
    assert state in possible_states(run)


@pytest.mark.requirement("S90")
def test_tables_contain_each_reason_and_each_state() -> None:
    reasons = STATES_WITHOUT_ATTEMPT.keys() | STATES_WITHOUT_SUCCESS.keys()
    states = set().union(*STATES_WITHOUT_ATTEMPT.values(), *STATES_WITHOUT_SUCCESS.values())

    assert reasons == {None, *Reason}
    assert states | {RunState.RUNNING, RunState.SUCCEEDED, RunState.DEAD} == set(RunState)


@pytest.mark.requirement("S90")
@pytest.mark.parametrize(
    ("run", "text"),
    [
        (replace(run_after("succeeded"), state="dead"), "imply succeeded"),
        (replace(run_after("failed"), state="succeeded"), "imply retrying"),
        (replace(run_after("succeeded", "failed"), state="staged"), "imply retrying"),
        (replace(run_after(), state="skipped"), "imply staged"),
        (replace(run_after("failed"), attempt=3), "imply no state"),
        (
            replace(run_after("failed"), state="retrying", outcome="succeeded"),
            "outcome of the run is succeeded",
        ),
        (
            replace(run_after("failed"), state="retrying", outcome="failed", seq=2),
            "value of seq is 2",
        ),
        (
            replace(run_after("failed", "failed"), attempts=attempts("failed", "failed")[::-1]),
            "numbered",
        ),
    ],
)
def test_run_is_inconsistent_when_its_attempts_do_not_imply_its_state(
    ticker: AuditedTicker, run: Run, text: str
) -> None:
    assert any(text in each.text for each in find_inconsistent(ticker.schedule, run))


@pytest.mark.requirement("S90")
def test_replayed_run_is_checked_by_the_attempts_of_its_replay_number(
    ticker: AuditedTicker,
) -> None:
    replayed = replace(
        run_after("failed", "succeeded"),
        attempts=(*attempts("failed", "failed"), *attempts("succeeded", replay_number=1)),
        replay_number=1,
        attempt=1,
        seq=8,
        state=RunState.SUCCEEDED,
        outcome="succeeded",
    )

    assert list(find_inconsistent(ticker.schedule, replayed)) == []
    assert list(find_duplicated(ticker.schedule, replayed)) == []


@pytest.mark.parametrize("outcomes", [("succeeded", "succeeded"), ("succeeded", "failed")])
def test_run_is_duplicated_when_an_attempt_follows_a_success(
    ticker: AuditedTicker, outcomes: tuple[str, ...]
) -> None:
    (finding,) = find_duplicated(ticker.schedule, run_after(*outcomes))

    assert finding.kind is FindingKind.DUPLICATED


def test_schedule_is_consistent_when_the_ticker_planned_it(ticker: AuditedTicker) -> None:
    assert list(find_inconsistent_schedule(ticker.schedule)) == []


def test_schedule_is_inconsistent_when_the_ticker_reads_it_after_its_next_time(
    ticker: AuditedTicker,
) -> None:
    next_at = ticker.schedule.next_at
    assert next_at is not None
    late = replace(ticker.schedule, next_at=next_at + timedelta(hours=1))

    assert "but the ticker reads the schedule at" in next(find_inconsistent_schedule(late)).text


def test_schedule_with_a_pending_version_is_inconsistent_only_when_runs_remain() -> None:
    ticker = AuditedTicker(NINE)
    ticker.put({**EVERY, "times": 7})
    ticker.send("schedule.patch", set={"priority": 9}, effective_at=after(7200))
    late = replace(ticker.schedule, next_at=NINE + timedelta(hours=1))

    assert late.dispatched < 7
    assert "but the ticker reads the schedule at" in next(find_inconsistent_schedule(late)).text
    assert list(find_inconsistent_schedule(replace(late, dispatched=7))) == []


def test_schedule_is_inconsistent_when_its_version_is_not_the_newest_active_one(
    ticker: AuditedTicker,
) -> None:
    ticker.put(EVERY, expected_version="any", priority=9)

    correct = ticker.schedule
    for damaged in (
        replace(correct, version=1),
        replace(correct, shown_version=1),
        replace(correct, version=3),
    ):
        assert "Version 2 is in force" in next(find_inconsistent_schedule(damaged)).text


def test_completed_schedule_is_inconsistent_when_it_requires_a_run(ticker: AuditedTicker) -> None:
    completed = replace(ticker.schedule, state=ScheduleState.COMPLETED, next_at=None)

    assert "schedule is completed" in next(find_inconsistent_schedule(completed)).text


def test_completed_schedule_is_consistent_when_times_ended_it() -> None:
    ticker = AuditedTicker(NINE)
    ticker.put({**EVERY, "times": 2})
    ticker.stage_all()

    assert ticker.schedule.state is ScheduleState.COMPLETED
    assert list(find_inconsistent_schedule(ticker.schedule)) == []
    assert after(20) in ticker.staged_times
