"""TODO: describe this module."""

from datetime import datetime
from typing import Final

from harebell.domain.retry import Decision, Failure, decide
from harebell.domain.run_states import FAILED, SUCCEEDED, AttemptCompletion, RunState, state_after
from harebell.executor.model.claimed_run import ClaimedRun
from harebell.executor.targets.attempt import AttemptOutcome, Stopped, Success
from harebell.messaging.topology.delay_queues import LONGEST_DELAY, Tier, route

CANCELLED: Final = "cancelled"  # the outcome of an attempt that was stopped


def decide_next(
    run: ClaimedRun, outcome: AttemptOutcome, now: datetime, dice: float
) -> Decision | None:
    """None: it succeeded, or was stopped; there is nothing to decide."""
    if isinstance(outcome, Success | Stopped):
        return None
    ticket = run.ticket
    return decide(
        ticket.run_spec.retry, run.attempt, outcome, now, dice=dice, expires_at=ticket.expires_at
    )


def completion_of(
    run: ClaimedRun, outcome: AttemptOutcome, decided: Decision | None, now: datetime
) -> AttemptCompletion:
    """The record of an attempt. A retry beyond the tiers' reach rests unstaged."""
    if isinstance(outcome, Stopped):
        state, attempt = RunState.CANCELLED, CANCELLED
        started = run.started_at
        return AttemptCompletion(
            run.key, run.token, state, attempt, started, now, reason=outcome.reason
        )
    state, reason, at = (
        (RunState.SUCCEEDED, None, None) if decided is None else state_after(decided)
    )
    rests = at is None or route(at, now, reach=LONGEST_DELAY).tier is Tier.COLD
    failed = None if isinstance(outcome, Success) else outcome
    return AttemptCompletion(
        run.key,
        run.token,
        state,
        SUCCEEDED if failed is None else FAILED,
        run.started_at,
        now,
        reason=reason,
        next_attempt_at=at,
        staged_at=None if rests else now,
        error_code=None if failed is None else failed.code,
        error=None if failed is None else failed.message,
        http_status=outcome.status if isinstance(outcome, Success) else outcome.http_status,
        result=outcome.result if isinstance(outcome, Success) else None,
        healthy=is_healthy(outcome),
    )


def is_healthy(outcome: Success | Failure) -> bool | None:
    """Of whom was called. To refuse what was asked is an answer; None: it may never have heard."""
    if isinstance(outcome, Success):
        return True
    if outcome.retryable:
        return False
    return None if outcome.http_status is None else True
