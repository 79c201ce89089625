"""What a replay of many does next: canaries, rate, ratio, and its end."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harebell.dlq_inspector.model.replay_job import (
    BATCH,
    LOOK,
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


def test_without_a_rate_it_takes_a_batch_at_once() -> None:
    assert next_step(JOB, NOW) == TakeBatch(BATCH, NOW, NOW)
    assert next_step(taken(990, succeeded=990), NOW) == TakeBatch(10, NOW, NOW)


def test_it_waits_while_too_many_runs_have_not_ended() -> None:
    many = replace(taken(MAX_UNFINISHED), total=5_000)

    assert next_step(many, NOW) == TakeBatch(0, NOW, NOW + LOOK)
    assert next_step(replace(many, succeeded=30), NOW) == TakeBatch(30, NOW, NOW)


@pytest.mark.requirement("ASK-2")
def test_canaries_go_first_and_the_rest_waits_until_all_of_them_are_well() -> None:
    job = replace(JOB, canary=5)

    assert next_step(job, NOW) == TakeBatch(5, NOW, NOW)
    out = replace(job, taken=5, replayed=5, succeeded=4)
    assert next_step(out, NOW) == TakeBatch(0, NOW, NOW + LOOK)
    assert next_step(replace(out, succeeded=5), NOW) == TakeBatch(BATCH, NOW, NOW)


@pytest.mark.requirement("ASK-2")
def test_a_canary_that_fails_stops_it() -> None:
    out = replace(taken(5, succeeded=1, failed=1), canary=5)

    assert next_step(out, NOW) == Finish(
        ReplayJobState.ABORTED, AbortReason.CANARY_FAILED, NOW + LOOK
    )


def test_a_canary_of_letters_that_could_not_be_replayed_holds_nothing_up() -> None:
    assert next_step(replace(JOB, canary=5, taken=5), NOW) == TakeBatch(BATCH, NOW, NOW)


@pytest.mark.requirement("ASK-2")
def test_it_stops_when_too_large_a_part_has_failed() -> None:
    watched = replace(taken(200), abort_on_failure_ratio=0.2)

    few = replace(watched, replayed=9, succeeded=0, failed=9)
    assert isinstance(next_step(few, NOW), TakeBatch)
    at_the_bound = replace(watched, succeeded=160, failed=40)
    assert isinstance(next_step(at_the_bound, NOW), TakeBatch)
    beyond = replace(watched, succeeded=150, failed=40)
    assert next_step(beyond, NOW) == Finish(
        ReplayJobState.ABORTED, AbortReason.FAILURE_RATIO, NOW + LOOK
    )


@pytest.mark.requirement("ASK-2")
def test_no_more_than_a_few_go_on_where_failures_may_stop_it() -> None:
    watched = replace(taken(MAX_UNFINISHED_WITH_RATIO), abort_on_failure_ratio=0.5)

    assert next_step(watched, NOW) == TakeBatch(0, NOW, NOW + LOOK)


def test_it_is_done_when_the_last_replayed_run_has_ended() -> None:
    assert next_step(taken(1_000, succeeded=999), NOW) == TakeBatch(0, NOW, NOW + LOOK)
    well = taken(1_000, succeeded=999, failed=1)
    assert next_step(well, NOW) == Finish(ReplayJobState.DONE, None, None)


@pytest.mark.parametrize("state", [ReplayJobState.PAUSED, ReplayJobState.ABORTED])
def test_what_does_not_run_takes_no_more_but_sees_its_runs_end(state: ReplayJobState) -> None:
    halted = replace(taken(10, succeeded=9), state=state)

    assert next_step(halted, NOW) == TakeBatch(0, NOW, NOW + LOOK)
    assert next_step(replace(halted, failed=1), NOW) == TakeBatch(0, NOW, None)


@pytest.mark.requirement("ASK-2")
@given(
    st.floats(min_value=0.01, max_value=1_000),
    st.lists(st.floats(min_value=0, max_value=30), min_size=1, max_size=40),
)
def test_however_often_it_looks_it_keeps_to_its_rate(rate: float, gaps: list[float]) -> None:
    job, now, total = replace(JOB, rate=rate, total=10**9), NOW, 0
    for gap in gaps:
        now += timedelta(seconds=gap)
        step = next_step(job, now)
        assert isinstance(step, TakeBatch)
        total += step.number
        far = taken(total, succeeded=total)
        job = replace(far, rate=rate, total=10**9, next_allowed_at=step.next_allowed_at)

    # one at once, and a second's worth that may be made up for
    assert total <= rate * ((now - NOW) / SECOND + 1) + 1.001


def test_a_person_steers_only_what_is_not_over() -> None:
    steered = {
        (verb, state): next_state(f"dlq.{verb}", state)
        for verb in ("pause", "resume", "abort")
        for state in ReplayJobState
    }

    assert {each: to for each, to in steered.items() if to is not None} == {
        ("pause", ReplayJobState.RUNNING): ReplayJobState.PAUSED,
        ("resume", ReplayJobState.PAUSED): ReplayJobState.RUNNING,
        ("abort", ReplayJobState.RUNNING): ReplayJobState.ABORTED,
        ("abort", ReplayJobState.PAUSED): ReplayJobState.ABORTED,
    }
