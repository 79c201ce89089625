"""What becomes of a run that started and was never heard of again."""

from datetime import datetime
from typing import Any

import pytest
from tests.fakes.tickets import NINE, after, ticket

from harebell.contract.policy import OnUnknown, RetryPolicy
from harebell.contract.ticket import Ticket
from harebell.domain.retry import ATTEMPTS_EXHAUSTED, LEASE_EXPIRED
from harebell.domain.run_states import Actor, Reason, RunState, is_allowed
from harebell.storage.runs.recovery import ExpiredLease
from harebell.ticker.recovery.rescuer import completion_of_lost_run

STARTED = after(-20)


def row(of: Ticket, *, attempt: int = 1, stop_reason: str | None = None) -> ExpiredLease:
    return ExpiredLease(
        key=of.run_key,
        token=7,
        attempt=attempt,
        holder="executor-1",
        started_at=STARTED,
        stop_reason=stop_reason,
    )


def running(expires_at: datetime | None = None, **work: Any) -> Ticket:
    plain = ticket()
    changed = plain.run_spec.model_copy(update=work)
    return plain.model_copy(update={"run_spec": changed, "expires_at": expires_at})


@pytest.mark.requirement("S82", "S85")
def test_a_lapsed_run_is_tried_again_at_once() -> None:
    run = running()

    ended = completion_of_lost_run(row(run), run, NINE)

    assert (ended.state, ended.reason) == (RunState.RETRYING, None)
    assert (ended.next_attempt_at, ended.staged_at) == (NINE, NINE)
    assert (ended.key, ended.token, ended.outcome) == (run.run_key, 7, LEASE_EXPIRED)


@pytest.mark.requirement("S34")
def test_the_attempt_that_lapsed_is_on_the_record() -> None:
    run = running()

    ended = completion_of_lost_run(row(run), run, NINE)

    assert ended.error_code == LEASE_EXPIRED
    assert "executor-1" in (ended.error or "")
    assert (ended.started_at, ended.finished_at, ended.duration_ms) == (STARTED, NINE, 20_000)


@pytest.mark.requirement("S106")
@pytest.mark.parametrize(
    ("attempt", "state"),
    [(1, RunState.RETRYING), (2, RunState.RETRYING), (3, RunState.DEAD), (4, RunState.DEAD)],
)
def test_the_last_attempt_that_lapses_is_dead(attempt: int, state: RunState) -> None:
    run = running(retry=RetryPolicy(max_attempts=3))

    ended = completion_of_lost_run(row(run, attempt=attempt), run, NINE)

    assert ended.state is state
    assert ended.reason == (ATTEMPTS_EXHAUSTED if state is RunState.DEAD else None)
    assert (ended.staged_at is None) == (state is RunState.DEAD)


@pytest.mark.requirement("S101")
@pytest.mark.parametrize("attempt", [1, 99])
def test_on_unknown_skip_closes_the_run(attempt: int) -> None:
    run = running(on_unknown=OnUnknown.SKIP)

    ended = completion_of_lost_run(row(run, attempt=attempt), run, NINE)

    assert (ended.state, ended.reason) == (RunState.SKIPPED, Reason.UNKNOWN_OUTCOME)
    assert (ended.next_attempt_at, ended.staged_at) == (None, None)


@pytest.mark.requirement("S33")
@pytest.mark.parametrize("reason", ["cancelled", "paused"])
@pytest.mark.parametrize("on_unknown", list(OnUnknown)[:2])
def test_a_run_that_was_asked_to_stop_is_cancelled(reason: str, on_unknown: OnUnknown) -> None:
    run = running(on_unknown=on_unknown)

    ended = completion_of_lost_run(row(run, stop_reason=reason), run, NINE)

    assert (ended.state, ended.reason) == (RunState.CANCELLED, reason)
    assert ended.next_attempt_at is None


def test_a_run_whose_time_has_passed_expires_instead() -> None:
    run = running(expires_at=NINE)

    ended = completion_of_lost_run(row(run), run, NINE)

    assert (ended.state, ended.reason) == (RunState.EXPIRED, Reason.EXPIRED)


def test_whatever_it_becomes_the_sweep_may_make_it_so() -> None:
    for run in (running(), running(on_unknown=OnUnknown.SKIP), running(expires_at=NINE)):
        for attempt in (1, 5):
            for stop_reason in (None, "cancelled"):
                ended = completion_of_lost_run(
                    row(run, attempt=attempt, stop_reason=stop_reason), run, NINE
                )
                assert is_allowed(Actor.RECOVER, RunState.RUNNING, ended.state)
