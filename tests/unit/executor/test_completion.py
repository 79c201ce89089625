"""Unit tests of the completion of an attempt: the next step, the record and the health."""

from datetime import timedelta

import pytest
from tests.fakes.tickets import NINE, after, ticket

from harebell.contract.policy import RetryPolicy
from harebell.domain.retry import (
    ATTEMPTS_EXHAUSTED,
    EXPIRED,
    MAX_FAILED_PROBES,
    Dead,
    Decision,
    Expired,
    Failure,
    Retry,
)
from harebell.domain.run_states import RunState
from harebell.executor.model.claimed_run import ClaimedRun
from harebell.executor.model.completion import (
    MIN_HEALTH_TIMEOUT,
    completion_of,
    decide_next,
    is_healthy,
)
from harebell.executor.targets.attempt import Success, TargetOutcome
from harebell.executor.targets.http_response import outcome_of
from harebell.messaging.topology.delay_queues import LONGEST_DELAY

HALF_A_MINUTE = timedelta(seconds=30)
CONNECT_FAILED = Failure("connect_failed", "The connection failed.")
TIMED_OUT = Failure("timeout", "The attempt did not end in time.")
FAILED = Failure("http_error", "HTTP 500", http_status=500)


def claimed(attempt: int = 1, *, failed_probes: int = 0) -> ClaimedRun:
    return ClaimedRun(
        ticket=ticket(),
        token=2,
        attempt=attempt,
        lease=15.0,
        renewed_at=100.0,
        started_at=NINE,
        failed_probes=failed_probes,
    )


@pytest.mark.parametrize(
    ("outcome", "attempt", "expected"),
    [
        (Success(200, "ok"), 5, type(None)),
        (FAILED, 1, Retry),
        (FAILED, 5, Dead),
        (Failure("http_status", "HTTP 404", retryable=False), 1, Dead),
    ],
)
def test_decide_next_depends_on_the_outcome_and_the_attempt(
    outcome: TargetOutcome, attempt: int, expected: type
) -> None:
    decision = decide_next(claimed(attempt), outcome, NINE, random_fraction=0.5)

    assert type(decision) is expected


@pytest.mark.requirement("S106")
def test_decide_next_counts_the_attempt_of_the_claim() -> None:
    run = claimed(attempt=3)
    run_spec = run.ticket.run_spec.model_copy(update={"retry": RetryPolicy(max_attempts=3)})
    run.ticket = run.ticket.model_copy(update={"run_spec": run_spec})

    decision = decide_next(run, FAILED, NINE, random_fraction=0)

    assert decision == Dead(ATTEMPTS_EXHAUSTED)


@pytest.mark.requirement("S19", "S72")
def test_completion_of_a_success_has_status_result_and_duration() -> None:
    completion = completion_of(claimed(), Success(204, "done"), None, now=after(2))

    assert (completion.state, completion.outcome) == (RunState.SUCCEEDED, "succeeded")
    assert (completion.http_status, completion.result) == (204, "done")
    assert (completion.reason, completion.duration_ms) == (None, 2000)
    assert (completion.token, completion.next_attempt_at, completion.staged_at) == (2, None, None)


@pytest.mark.requirement("S34")
@pytest.mark.parametrize(
    ("decision", "state", "reason"),
    [
        (Retry(after(8)), RunState.RETRYING, None),
        (Dead(ATTEMPTS_EXHAUSTED), RunState.DEAD, ATTEMPTS_EXHAUSTED),
        (Expired(), RunState.EXPIRED, "expired"),
    ],
)
def test_completion_of_a_failure_has_its_error_for_each_decision(
    decision: Decision, state: RunState, reason: str | None
) -> None:
    completion = completion_of(claimed(), FAILED, decision, now=NINE)

    assert (completion.state, completion.reason) == (state, reason)
    assert (completion.outcome, completion.error_code) == ("failed", "http_error")
    assert (completion.error, completion.http_status) == ("HTTP 500", 500)
    assert completion.next_attempt_at == (after(8) if state is RunState.RETRYING else None)


@pytest.mark.parametrize(
    ("wait", "staged"),
    [
        (timedelta(0), True),
        (LONGEST_DELAY, True),
        (LONGEST_DELAY + timedelta(milliseconds=1), False),
    ],
)
def test_completion_stages_a_retry_only_within_the_longest_delay(
    wait: timedelta, *, staged: bool
) -> None:
    completion = completion_of(claimed(), FAILED, Retry(NINE + wait), now=NINE)

    assert (completion.staged_at is not None) is staged
    assert completion.next_attempt_at == NINE + wait


@pytest.mark.requirement("S113")
@pytest.mark.parametrize(
    ("status", "healthy"),
    [
        *((status, True) for status in (200, 204, 301, 400, 401, 404, 422)),
        *((status, False) for status in (408, 425, 429, 500, 502, 503)),
    ],
)
def test_downstream_is_unhealthy_only_when_its_status_is_retryable(
    status: int, *, healthy: bool
) -> None:
    outcome = outcome_of(status, {}, None)

    assert is_healthy(outcome, HALF_A_MINUTE) is healthy


@pytest.mark.requirement("S113")
def test_downstream_is_unhealthy_when_it_does_not_answer() -> None:
    assert is_healthy(CONNECT_FAILED, HALF_A_MINUTE) is False
    assert is_healthy(TIMED_OUT, HALF_A_MINUTE) is False


@pytest.mark.requirement("P5")
def test_timeout_below_five_seconds_shows_nothing_about_the_downstream() -> None:
    below = MIN_HEALTH_TIMEOUT - timedelta(milliseconds=1)

    assert is_healthy(TIMED_OUT, below) is None
    assert is_healthy(TIMED_OUT, MIN_HEALTH_TIMEOUT) is False
    assert is_healthy(CONNECT_FAILED, below) is False


@pytest.mark.requirement("S113")
def test_health_is_unknown_when_no_request_was_sent() -> None:
    expired = Failure(EXPIRED, "The expiry time of the run has passed.", retryable=False)
    private = Failure("private_address", "The address is private.", retryable=False)

    assert is_healthy(expired, HALF_A_MINUTE) is None
    assert is_healthy(private, HALF_A_MINUTE) is None


@pytest.mark.requirement("S113")
def test_downstream_is_healthy_after_a_success_without_a_status() -> None:
    assert is_healthy(Success(), HALF_A_MINUTE) is True


@pytest.mark.requirement("S113")
@pytest.mark.parametrize(
    ("run", "is_probe", "expected"),
    [
        (claimed(5), False, Dead),
        (claimed(5), True, Retry),  # its last attempt is a probe
        (claimed(9, failed_probes=5), False, Retry),  # the fourth attempt that counts
        (claimed(10, failed_probes=5), False, Dead),
        (claimed(10, failed_probes=5), True, Retry),
        (claimed(MAX_FAILED_PROBES + 5, failed_probes=MAX_FAILED_PROBES), True, Dead),
    ],
)
def test_failed_probe_uses_no_attempt(run: ClaimedRun, *, is_probe: bool, expected: type) -> None:
    decision = decide_next(run, FAILED, NINE, random_fraction=0.5, is_probe=is_probe)
    completion = completion_of(run, FAILED, decision, now=NINE, is_probe=is_probe)

    assert type(decision) is expected
    assert completion.is_failed_probe == (is_probe and run.failed_probes < MAX_FAILED_PROBES)


@pytest.mark.requirement("S113")
@pytest.mark.parametrize(
    "outcome", [Success(200, "ok"), Failure("http_status", "HTTP 404", retryable=False)]
)
def test_probe_that_reaches_its_target_counts(outcome: TargetOutcome) -> None:
    decision = decide_next(claimed(), outcome, NINE, random_fraction=0.5, is_probe=True)

    assert not completion_of(claimed(), outcome, decision, now=NINE, is_probe=True).is_failed_probe
    assert not isinstance(decision, Retry)


@pytest.mark.requirement("S113")
def test_run_of_a_failed_probe_expires_when_its_expiry_time_passes() -> None:
    run = claimed(3)
    run.ticket = run.ticket.model_copy(update={"expires_at": NINE})

    decision = decide_next(run, FAILED, NINE, random_fraction=0.5, is_probe=True)

    assert decision == Expired()
