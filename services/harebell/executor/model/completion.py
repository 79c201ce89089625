"""The completion of an attempt: the decision about the next step, and the record to store."""

from datetime import datetime, timedelta
from typing import Final

from harebell.contract.errors import SecretMissing, SigningKeyInvalid
from harebell.domain.retry import NO_WAIT, TIMEOUT, Decision, Failure, decide, is_uncounted
from harebell.domain.run_states import FAILED, SUCCEEDED, AttemptCompletion, RunState, state_after
from harebell.executor.model.claimed_run import ClaimedRun
from harebell.executor.targets.attempt import AttemptOutcome, Stopped, Success
from harebell.messaging.topology.delay_queues import LONGEST_DELAY, Tier, route

CANCELLED: Final = "cancelled"  # the outcome of a stopped attempt
_BEFORE_CALL: Final = (SecretMissing.code, SecretMissing.invalid_code, SigningKeyInvalid.code)
# The shortest timeout whose expiry counts as a failure of the downstream. Users choose the timeout.
MIN_HEALTH_TIMEOUT: Final = timedelta(seconds=5)


def is_failed_probe(run: ClaimedRun, outcome: AttemptOutcome, *, is_probe: bool) -> bool:
    """Return whether the attempt is a failed probe, which does not count for `max_attempts`."""
    return is_probe and isinstance(outcome, Failure) and is_uncounted(outcome, run.failed_probes)


def decide_next(
    run: ClaimedRun,
    outcome: AttemptOutcome,
    now: datetime,
    *,
    random_fraction: float,
    is_probe: bool = False,
    min_wait: timedelta = NO_WAIT,
) -> Decision | None:
    """Return the next step after an attempt. Return None after a success or a stop request."""
    if isinstance(outcome, Success | Stopped):
        return None
    ticket = run.ticket
    return decide(
        ticket.run_spec.retry,
        run.attempt,
        outcome,
        now=now,
        random_fraction=random_fraction,
        expires_at=ticket.expires_at,
        failed_probes=run.failed_probes,
        is_failed_probe=is_failed_probe(run, outcome, is_probe=is_probe),
        min_wait=min_wait,
    )


def completion_of(
    run: ClaimedRun,
    outcome: AttemptOutcome,
    decision: Decision | None,
    *,
    now: datetime,
    is_probe: bool = False,
) -> AttemptCompletion:
    """Return the record of an attempt.

    A retry beyond the longest delay stays unstaged in PostgreSQL until the ticker stages it.
    """
    if isinstance(outcome, Stopped):
        return AttemptCompletion(
            run.key,
            run.token,
            RunState.CANCELLED,
            CANCELLED,
            run.started_at,
            now,
            reason=outcome.reason,
            trace=run.recorded_trace,
        )
    state, reason, retry_at = (
        (RunState.SUCCEEDED, None, None) if decision is None else state_after(decision)
    )
    is_cold = retry_at is None or route(retry_at, now, horizon=LONGEST_DELAY).tier is Tier.COLD
    failure = None if isinstance(outcome, Success) else outcome
    return AttemptCompletion(
        run.key,
        run.token,
        state,
        SUCCEEDED if failure is None else FAILED,
        run.started_at,
        now,
        reason=reason,
        next_attempt_at=retry_at,
        staged_at=None if is_cold else now,
        error_code=None if failure is None else failure.code,
        error=None if failure is None else failure.message,
        http_status=outcome.status if isinstance(outcome, Success) else outcome.http_status,
        result=outcome.result if isinstance(outcome, Success) else None,
        healthy=is_healthy(outcome, run.ticket.run_spec.timeout),
        is_failed_probe=is_failed_probe(run, outcome, is_probe=is_probe),
        trace=run.recorded_trace,
    )


def is_healthy(outcome: Success | Failure, timeout: timedelta = MIN_HEALTH_TIMEOUT) -> bool | None:
    """Return whether the downstream answered. Return None if the attempt shows nothing about it.

    A rejected request is an answer, so the downstream is healthy. If the timeout was below
    MIN_HEALTH_TIMEOUT, reaching it shows nothing, because the schedule was too impatient.
    """
    if isinstance(outcome, Success):
        return True
    if outcome.code in _BEFORE_CALL:
        return None
    if outcome.code == TIMEOUT and timeout < MIN_HEALTH_TIMEOUT:
        return None
    if outcome.retryable:
        return False
    return None if outcome.http_status is None else True
