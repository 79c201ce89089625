"""The next step of a replay job: canary, rate, failure ratio and end."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harebell.dlq_inspector.model.replay_job import (
    CHECK_INTERVAL,
    MAX_BATCH,
    MAX_UNFINISHED,
    MAX_UNFINISHED_WITH_RATIO,
    AbortReason,
    Finish,
    ReplayJob,
    ReplayJobState,
    TakeBatch,
    next_state,
    next_step,
)

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
SECOND = timedelta(seconds=1)
JOB = ReplayJob(
    id=UUID(int=1), tenant="acme", state=ReplayJobState.RUNNING, total=1_000, next_allowed_at=NOW
)


def taken(number: int, *, succeeded: int = 0, failed: int = 0) -> ReplayJob:
    return replace(JOB, taken=number, replayed=number, succeeded=succeeded, failed=failed)


def test_job_takes_a_batch_at_once_without_a_rate() -> None:
    assert next_step(JOB, NOW) == TakeBatch(MAX_BATCH, NOW, NOW)
    assert next_step(taken(990, succeeded=990), NOW) == TakeBatch(10, NOW, NOW)


def test_job_waits_while_too_many_runs_are_unfinished() -> None:
    many = replace(taken(MAX_UNFINISHED), total=5_000)

    assert next_step(many, NOW) == TakeBatch(0, NOW, NOW + CHECK_INTERVAL)
    assert next_step(replace(many, succeeded=30), NOW) == TakeBatch(30, NOW, NOW)


@pytest.mark.requirement("ASK-2")
def test_job_waits_until_every_canary_run_has_succeeded() -> None:
    job = replace(JOB, canary=5)

    assert next_step(job, NOW) == TakeBatch(5, NOW, NOW)
    out = replace(job, taken=5, replayed=5, succeeded=4)
    assert next_step(out, NOW) == TakeBatch(0, NOW, NOW + CHECK_INTERVAL)
    assert next_step(replace(out, succeeded=5), NOW) == TakeBatch(MAX_BATCH, NOW, NOW)


@pytest.mark.requirement("ASK-2")
def test_job_aborts_when_a_canary_run_fails() -> None:
    out = replace(taken(5, succeeded=1, failed=1), canary=5)

    assert next_step(out, NOW) == Finish(
        ReplayJobState.ABORTED, AbortReason.CANARY_FAILED, NOW + CHECK_INTERVAL
    )


def test_job_continues_when_no_dead_letter_of_the_canary_is_replayable() -> None:
    assert next_step(replace(JOB, canary=5, taken=5), NOW) == TakeBatch(MAX_BATCH, NOW, NOW)


@pytest.mark.requirement("ASK-2")
def test_job_aborts_when_the_failure_ratio_is_exceeded() -> None:
    limited = replace(taken(200), abort_on_failure_ratio=0.2)

    small_sample = replace(limited, replayed=9, succeeded=0, failed=9)
    assert isinstance(next_step(small_sample, NOW), TakeBatch)
    at_the_bound = replace(limited, succeeded=160, failed=40)
    assert isinstance(next_step(at_the_bound, NOW), TakeBatch)
    above = replace(limited, succeeded=150, failed=40)
    assert next_step(above, NOW) == Finish(
        ReplayJobState.ABORTED, AbortReason.FAILURE_RATIO, NOW + CHECK_INTERVAL
    )


@pytest.mark.requirement("ASK-2")
def test_job_with_a_failure_ratio_has_fewer_unfinished_runs() -> None:
    limited = replace(taken(MAX_UNFINISHED_WITH_RATIO), abort_on_failure_ratio=0.5)

    assert next_step(limited, NOW) == TakeBatch(0, NOW, NOW + CHECK_INTERVAL)


def test_job_is_done_when_its_last_run_has_ended() -> None:
    assert next_step(taken(1_000, succeeded=999), NOW) == TakeBatch(0, NOW, NOW + CHECK_INTERVAL)
    ended = taken(1_000, succeeded=999, failed=1)
    assert next_step(ended, NOW) == Finish(ReplayJobState.DONE, None, None)


@pytest.mark.parametrize("state", [ReplayJobState.PAUSED, ReplayJobState.ABORTED])
def test_job_that_is_not_running_only_checks_its_unfinished_runs(state: ReplayJobState) -> None:
    stopped = replace(taken(10, succeeded=9), state=state)

    assert next_step(stopped, NOW) == TakeBatch(0, NOW, NOW + CHECK_INTERVAL)
    assert next_step(replace(stopped, failed=1), NOW) == TakeBatch(0, NOW, None)


@pytest.mark.requirement("ASK-2")
@given(
    st.floats(min_value=0.01, max_value=1_000),
    st.lists(st.floats(min_value=0, max_value=30), min_size=1, max_size=40),
)
def test_job_observes_its_rate_at_any_check_interval(rate: float, gaps: list[float]) -> None:
    job, now, total = replace(JOB, rate=rate, total=10**9), NOW, 0
    for gap in gaps:
        now += timedelta(seconds=gap)
        step = next_step(job, now)
        assert isinstance(step, TakeBatch)
        total += step.count
        far = taken(total, succeeded=total)
        job = replace(far, rate=rate, total=10**9, next_allowed_at=step.next_allowed_at)

    # one dead letter at once, and the burst of one second
    assert total <= rate * ((now - NOW) / SECOND + 1) + 1.001


def test_next_state_changes_only_a_job_that_has_not_ended() -> None:
    states = {
        (verb, state): next_state(f"dlq.replay_job.{verb}", state)
        for verb in ("pause", "resume", "abort")
        for state in ReplayJobState
    }

    assert {each: to for each, to in states.items() if to is not None} == {
        ("pause", ReplayJobState.RUNNING): ReplayJobState.PAUSED,
        ("resume", ReplayJobState.PAUSED): ReplayJobState.RUNNING,
        ("abort", ReplayJobState.RUNNING): ReplayJobState.ABORTED,
        ("abort", ReplayJobState.PAUSED): ReplayJobState.ABORTED,
    }
