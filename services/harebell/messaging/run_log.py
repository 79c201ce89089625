"""One log line for each transition of a run, with its ids.

Each line is written after the commit of its transition. A crash between the two loses the line and
never the record of the run.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, Final, Literal, TypeAlias

import structlog

from harebell.contract.json_codec import decode_trusted
from harebell.contract.ticket import OVERRIDE_TRACE, Ticket
from harebell.contract.trace import TraceContext
from harebell.domain.run_states import AttemptCompletion, RunState
from harebell.messaging.ticket_batches import TicketHeader

RunLogMode: TypeAlias = Literal["off", "failures", "all"]

PHRASE: Final = "run changed"
RUN_VERBS: Final = "run."

log = structlog.get_logger()

_mode: RunLogMode = "failures"


def use(mode: RunLogMode) -> None:
    """Set the transitions that this process logs."""
    global _mode  # noqa: PLW0603  # one per process, set once at start
    _mode = mode


def log_staged(tickets: Iterable[TicketHeader]) -> None:
    """Log runs that a committed transaction has staged."""
    if _mode == "all":
        for ticket in tickets:
            log.info(PHRASE, state=RunState.STAGED.value, run=ticket.run_id, **_fields_of(ticket))


def log_start(ticket: Ticket, attempt: int, trace: TraceContext | None, *, at: datetime) -> None:
    """Log the start of an attempt, in which the run is `running`."""
    if _mode != "all":
        return
    log.info(
        PHRASE,
        state=RunState.RUNNING.value,
        run=ticket.run_id,
        attempt=attempt,
        tenant=ticket.run_spec.tenant,
        **_present(key=ticket.run_spec.key, replay=ticket.replay_number or None),
        lateness=(at - ticket.due_at).total_seconds(),
        **_ids(trace),
    )


def log_event(
    tenant: str,
    verb: str,
    data: Mapping[str, Any],
    *,
    attempt: AttemptCompletion | None,
    runs: int,
) -> None:
    """Log the transition whose event a service publishes. `runs` is the number of its runs."""
    if _mode == "off" or not verb.startswith(RUN_VERBS):
        return
    if "state" not in data:  # a report of progress is no transition
        return
    state = data["state"]
    if _mode != "all" and state == RunState.SUCCEEDED:
        return
    fields: dict[str, Any] = {"state": str(state), "run": data["run_id"]}
    fields |= {"attempt": data.get("attempt", 0), "tenant": tenant}
    fields |= _present(key=data.get("key"), reason=data.get("reason"))
    if runs > 1:
        fields["runs"] = runs
    if attempt is not None:
        fields |= _present(error=attempt.error_code, duration_ms=attempt.duration_ms)
        fields |= _present(failed_probe=attempt.is_failed_probe or None)
        fields |= _ids(None if attempt.trace is None else TraceContext(attempt.trace))
    log.info(PHRASE, **fields)


def _fields_of(header: TicketHeader) -> dict[str, Any]:
    """Return the fields that only the whole ticket contains."""
    ticket = decode_trusted(header.raw)
    run_spec = ticket["run_spec"]
    origin = (ticket.get("override") or {}).get(OVERRIDE_TRACE) or run_spec.get("trace")
    return {
        "attempt": 0,
        "tenant": header.tenant,
        **_present(key=run_spec.get("key"), replay=ticket.get("replay_number") or None),
        **({} if origin is None else {"trace_id": TraceContext(origin["traceparent"]).trace_id}),
    }


def _ids(trace: TraceContext | None) -> dict[str, str]:
    return {} if trace is None else {"trace_id": trace.trace_id, "span_id": trace.span_id}


def _present(**fields: object) -> dict[str, Any]:
    """Return the fields that are not None."""
    return {name: value for name, value in fields.items() if value is not None}
