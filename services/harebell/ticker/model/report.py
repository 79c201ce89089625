"""The rules for the report of a worker: what a valid one changes, and why another is refused."""

from datetime import datetime, timedelta
from typing import Final

import orjson

from harebell.contract.commands import RunComplete, RunFail, RunReport
from harebell.contract.errors import Conflict, NotFound, Rejected
from harebell.contract.ids import RunKey
from harebell.contract.responses import RunResponse
from harebell.contract.ticket import Ticket
from harebell.domain.retry import NO_WAIT, Failure, decide
from harebell.domain.run_states import (
    FAILED,
    STOPPING_REASONS,
    SUCCEEDED,
    WORKER,
    AttemptCompletion,
    ReportedRun,
    RunState,
    seq_of,
    state_after,
)
from harebell.messaging.topology.delay_queues import LONGEST_DELAY, Tier, route

CANCELLED: Final = "cancelled"  # the outcome of a stopped attempt
COMPLETED: Final = "completed"
RENEWED: Final = "renewed"
REPEATED: Final = "repeated"


def is_valid(report: RunReport, run: ReportedRun | None) -> bool:
    """Return whether the worker of the report has the lease of the run."""
    return (
        run is not None
        and run.state == RunState.RUNNING
        and run.lease_holder == WORKER
        and run.token == report.fencing_token
    )


def response_without_effect(report: RunReport, run: ReportedRun | None) -> RunResponse | Rejected:
    """Return the response to a report that changes nothing.

    A repeat of the report that ended the attempt succeeds. Any other report is refused with the
    reason.
    """
    if run is None:
        return NotFound(f"The tenant has no run with the id {report.run_id}.", field="run_id")
    if _is_repeated(report, run):
        return RunResponse(run_id=report.run_id, status=REPEATED, state=run.state)
    if run.state == RunState.RUNNING and run.token == report.fencing_token:
        reason = "The run is not delegated to a worker, so the end of its call completes the run."
        return Conflict(reason, field="run_id", code="not_delegated")
    state = f"The run is {run.state} after attempt {run.attempt}."
    if run.state == RunState.RUNNING:
        state = f"Attempt {run.attempt} of the run has another token."
    reason = f"The fencing token {report.fencing_token} is no longer valid. {state}"
    return Conflict(reason, field="fencing_token", code="stale_token")


def _is_repeated(report: RunReport, run: ReportedRun) -> bool:
    """Return whether the report has already ended the last attempt of the run."""
    if seq_of(run.token) != seq_of(report.fencing_token) + 1:
        return False
    match report:
        case RunComplete():
            return run.last_outcome == SUCCEEDED
        case RunFail(code=code):
            return run.last_outcome in (FAILED, CANCELLED) and run.last_code == code
        case _:
            return False


def completion_of_report(
    report: RunComplete | RunFail,
    run: ReportedRun,
    ticket: Ticket,
    *,
    now: datetime,
    random_fraction: float,
    min_wait: timedelta = NO_WAIT,
) -> AttemptCompletion:
    """Return the completion of a delegated run by a valid report.

    After a stop request, a failure cancels the run; otherwise the retry rule decides, as after the
    attempt of an executor. How healthy the downstream is, the call that delegated the run has
    shown.
    """
    completed = AttemptCompletion(
        key=RunKey.parse(report.run_id),
        token=report.fencing_token,
        state=RunState.SUCCEEDED,
        outcome=SUCCEEDED,
        started_at=run.started_at,
        finished_at=now,
    )
    if isinstance(report, RunComplete):
        result = None if report.result is None else orjson.dumps(report.result).decode()
        return completed._replace(result=result)
    completed = completed._replace(
        outcome=FAILED, error_code=report.code, error=report.reason or None
    )
    if run.stop_reason in STOPPING_REASONS:
        return completed._replace(
            state=RunState.CANCELLED, outcome=CANCELLED, reason=run.stop_reason
        )
    failure = Failure(
        report.code,
        report.reason,
        retryable=report.retryable,
        retry_after=report.retry_after,
    )
    decision = decide(
        ticket.run_spec.retry,
        run.attempt,
        failure,
        now=now,
        random_fraction=random_fraction,
        expires_at=ticket.expires_at,
        failed_probes=run.failed_probes,
        min_wait=min_wait,
    )
    state, reason, at = state_after(decision)
    is_cold = at is None or route(at, now, horizon=LONGEST_DELAY).tier is Tier.COLD
    return completed._replace(
        state=state, reason=reason, next_attempt_at=at, staged_at=None if is_cold else now
    )
