"""The completion of runs whose executor stopped renewing the lease."""

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest
from tests.fakes.tickets import NINE, after, ticket

from harebell.contract.policy import OnUnknown, RetryPolicy
from harebell.contract.ticket import Ticket
from harebell.domain.retry import ATTEMPTS_EXHAUSTED, LEASE_EXPIRED
from harebell.domain.run_states import WORKER, Actor, Reason, RunState, is_allowed
from harebell.storage.runs.recovery import ExpiredLease
from harebell.ticker.recovery.rescuer import completion_of_lost_run

STARTED = after(-20)


def lease(
    run: Ticket, *, attempt: int = 1, stop_reason: str | None = None, failed_probes: int = 0
) -> ExpiredLease:
    return ExpiredLease(
        key=run.run_key,
        token=7,
        attempt=attempt,
        holder="executor-1",
        started_at=STARTED,
        stop_reason=stop_reason,
        failed_probes=failed_probes,
    )


def running(expires_at: datetime | None = None, **run_spec: Any) -> Ticket:
    plain = ticket()
    changed = plain.run_spec.model_copy(update=run_spec)
    return plain.model_copy(update={"run_spec": changed, "expires_at": expires_at})


@pytest.mark.requirement("S82", "S85")
def test_run_with_an_expired_lease_is_retried_at_once() -> None:
    run = running()

    completion = completion_of_lost_run(lease(run), run, NINE)

    assert (completion.state, completion.reason) == (RunState.RETRYING, None)
    assert (completion.next_attempt_at, completion.staged_at) == (NINE, NINE)
    assert (completion.key, completion.token, completion.outcome) == (run.run_key, 7, LEASE_EXPIRED)


@pytest.mark.requirement("P11")
def test_run_with_an_expired_lease_waits_for_the_minimum_of_its_tenant() -> None:
    run = running()
    passed = NINE - STARTED

    short, long, far = (
        completion_of_lost_run(lease(run), run, NINE, min_wait=wait)
        for wait in (passed, passed + timedelta(seconds=7), passed + timedelta(hours=1))
    )

    assert (short.next_attempt_at, short.staged_at) == (NINE, NINE)
    assert (long.next_attempt_at, long.staged_at) == (NINE + timedelta(seconds=7), NINE)
    assert (far.next_attempt_at, far.staged_at) == (NINE + timedelta(hours=1), None)


@pytest.mark.requirement("S34")
def test_attempt_with_an_expired_lease_is_recorded() -> None:
    run = running()

    completion = completion_of_lost_run(lease(run), run, NINE)

    assert completion.error_code == LEASE_EXPIRED
    assert "executor-1" in (completion.error or "")
    assert (completion.started_at, completion.finished_at, completion.duration_ms) == (
        STARTED,
        NINE,
        20_000,
    )


@pytest.mark.requirement("S106")
@pytest.mark.parametrize(
    ("attempt", "state"),
    [(1, RunState.RETRYING), (2, RunState.RETRYING), (3, RunState.DEAD), (4, RunState.DEAD)],
)
def test_run_is_dead_when_the_lease_of_its_last_attempt_expires(
    attempt: int, state: RunState
) -> None:
    run = running(retry=RetryPolicy(max_attempts=3))

    completion = completion_of_lost_run(lease(run, attempt=attempt), run, NINE)

    assert completion.state is state
    assert completion.reason == (ATTEMPTS_EXHAUSTED if state is RunState.DEAD else None)
    assert (completion.staged_at is None) == (state is RunState.DEAD)


@pytest.mark.requirement("S113")
@pytest.mark.parametrize(("attempt", "state"), [(9, RunState.RETRYING), (10, RunState.DEAD)])
def test_expired_lease_counts_although_earlier_failed_probes_do_not(
    attempt: int, state: RunState
) -> None:
    run = running(retry=RetryPolicy(max_attempts=3))

    completion = completion_of_lost_run(lease(run, attempt=attempt, failed_probes=7), run, NINE)

    assert (completion.state, completion.is_failed_probe) == (state, False)


@pytest.mark.requirement("S101")
@pytest.mark.parametrize("attempt", [1, 99])
def test_run_is_skipped_when_on_unknown_is_skip(attempt: int) -> None:
    run = running(on_unknown=OnUnknown.SKIP)

    completion = completion_of_lost_run(lease(run, attempt=attempt), run, NINE)

    assert (completion.state, completion.reason) == (RunState.SKIPPED, Reason.UNKNOWN_OUTCOME)
    assert (completion.next_attempt_at, completion.staged_at) == (None, None)


@pytest.mark.requirement("S33")
@pytest.mark.parametrize("reason", ["cancelled", "paused"])
@pytest.mark.parametrize("on_unknown", list(OnUnknown)[:2])
def test_run_with_a_stop_request_is_cancelled_when_its_lease_expires(
    reason: str, on_unknown: OnUnknown
) -> None:
    run = running(on_unknown=on_unknown)

    completion = completion_of_lost_run(lease(run, stop_reason=reason), run, NINE)

    assert (completion.state, completion.reason) == (RunState.CANCELLED, reason)
    assert completion.next_attempt_at is None


def test_run_expires_when_its_lease_and_its_expiry_time_have_passed() -> None:
    run = running(expires_at=NINE)

    completion = completion_of_lost_run(lease(run), run, NINE)

    assert (completion.state, completion.reason) == (RunState.EXPIRED, Reason.EXPIRED)


def test_every_state_of_a_lost_run_is_an_allowed_transition() -> None:
    for run in (running(), running(on_unknown=OnUnknown.SKIP), running(expires_at=NINE)):
        for attempt in (1, 5):
            for stop_reason in (None, "cancelled"):
                completion = completion_of_lost_run(
                    lease(run, attempt=attempt, stop_reason=stop_reason), run, NINE
                )
                assert is_allowed(Actor.RECOVER, RunState.RUNNING, completion.state)


@pytest.mark.requirement("S59")
def test_run_of_a_silent_worker_is_retried_and_its_attempt_names_the_heartbeat() -> None:
    run = running()
    silent = replace(lease(run), holder=WORKER)

    completion = completion_of_lost_run(silent, run, NINE)

    assert (completion.state, completion.outcome) == (RunState.RETRYING, LEASE_EXPIRED)
    assert completion.error is not None
    assert completion.error.startswith("The worker sent no heartbeat within its lease")
