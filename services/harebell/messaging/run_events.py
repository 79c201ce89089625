"""Messages about runs: events, stop requests and dead letters."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from pamqp.common import FieldValue

from harebell.contract import amqp_names
from harebell.contract.control import StopRequest
from harebell.contract.dead_letter import AttemptRecord, DeadRun
from harebell.contract.events import RunEventData, RunProgressedEventData, make_event
from harebell.contract.ids import RunKey
from harebell.contract.json_codec import encode, encode_all
from harebell.contract.redaction import redact_target
from harebell.contract.ticket import Ticket
from harebell.domain.run_states import AttemptCompletion, Reason, RunEnd, RunState
from harebell.messaging.event_publisher import OutgoingEvent
from harebell.messaging.publisher import OutgoingMessage
from harebell.messaging.topology.bus import executor_control_key


def run_event(ticket: Ticket, completion: AttemptCompletion, attempt: int) -> OutgoingEvent:
    """Return the event of an attempt, with the fields of `RunEventData`."""
    verb = f"run.{completion.state}"
    tenant = ticket.run_spec.tenant
    finished_at, next_attempt_at = completion.finished_at, completion.next_attempt_at
    data = {
        "run_id": ticket.run_id,
        "schedule_id": ticket.schedule_id,
        "key": ticket.run_spec.key,
        "scheduled_for": ticket.scheduled_for,
        "attempt": attempt,
        "state": completion.state,
        "reason": completion.reason or completion.error_code,
        "finished_at": finished_at if next_attempt_at is None else None,
        "next_attempt_at": next_attempt_at,
        "downstream": None if completion.healthy is None else ticket.downstream,
        "healthy": completion.healthy,
    }
    event_id = f"{ticket.run_id}/{completion.token}"
    event = make_event(tenant, verb, data, id_=event_id, subject=ticket.run_id, at=finished_at)
    return OutgoingEvent(tenant, verb, event, attempt=completion, end=completion.end)


def delegated_event(ticket: Ticket, *, attempt: int, token: int, at: datetime) -> OutgoingEvent:
    """Return the event of a call that delegated its run, which shows a healthy downstream.

    The attempt ends only when the worker reports, which may take days.
    """
    tenant, run_id = ticket.run_spec.tenant, ticket.run_id
    data = RunEventData(
        run_id=run_id,
        schedule_id=ticket.schedule_id,
        key=ticket.run_spec.key,
        scheduled_for=ticket.scheduled_for,
        attempt=attempt,
        state=RunState.RUNNING,
        downstream=ticket.downstream,
        healthy=True,
    )
    event = make_event(
        tenant, "run.delegated", data, id_=f"{run_id}/{token}", subject=run_id, at=at
    )
    return OutgoingEvent(tenant, "run.delegated", event)


def run_event_without_attempt(
    tenant: str,
    key: RunKey,
    *,
    state: RunState,
    reason: Reason,
    finished_at: datetime,
    attempt: int = 0,
    schedule_key: str | None = None,
    runs: int = 1,
) -> OutgoingEvent:
    """Return the event of a run that ends without a further attempt.

    `runs` is the number of skipped runs that one row represents.
    """
    verb, run_id = f"run.{state}", str(key)
    data = RunEventData(
        run_id=run_id,
        schedule_id=key.schedule_id,
        key=schedule_key,
        scheduled_for=key.scheduled_for,
        attempt=attempt,
        state=state,
        reason=reason,
        finished_at=finished_at,
    )
    event_id = f"{key}/{finished_at.isoformat()}"
    event = make_event(tenant, verb, data, id_=event_id, subject=run_id, at=finished_at)
    return OutgoingEvent(tenant, verb, event, end=RunEnd(state, reason, runs))


def progress_event(
    tenant: str, key: RunKey, progress: Mapping[str, Any], *, at: datetime
) -> OutgoingEvent:
    """Return the event of a report, without its checkpoint, which may contain data of the work."""
    run_id = str(key)
    data = RunProgressedEventData(
        run_id=run_id,
        schedule_id=key.schedule_id,
        scheduled_for=key.scheduled_for,
        percent=progress.get("percent"),
        message=progress.get("message"),
    )
    event_id = f"{run_id}/{at.isoformat()}"
    event = make_event(tenant, "run.progressed", data, id_=event_id, subject=run_id, at=at)
    return OutgoingEvent(tenant, "run.progressed", event)


def stop_request_message(holder: str, keys: Sequence[RunKey]) -> OutgoingMessage:
    """Return the stop request for the executor `holder`.

    The executor finds the same request at its next lease renewal, so the message may be lost.
    """
    return OutgoingMessage(
        exchange=amqp_names.CONTROL,
        routing_key=executor_control_key(holder),
        body=encode_all([StopRequest(run_id=str(key)) for key in keys]),
        type=amqp_names.message_type("run.stop"),
        message_id=f"{keys[0]}/stop",
    )


def dead_letter_of_run(
    ticket: Ticket, completion: AttemptCompletion, attempts: Sequence[AttemptRecord]
) -> OutgoingMessage:
    """Return the dead letter of a run, with its main fields in headers for the management UI."""
    dead = DeadRun(
        run_id=ticket.run_id,
        tenant=ticket.run_spec.tenant,
        schedule_id=ticket.schedule_id,
        scheduled_for=ticket.scheduled_for,
        key=ticket.run_spec.key,
        version=ticket.version,
        replay_number=ticket.replay_number,
        reason=completion.reason or "",
        error_code=completion.error_code or "",
        error=completion.error,
        dead_at=completion.finished_at,
        # A replay reads the target of the version, so the dead letter needs no literal secret.
        target=redact_target(
            ticket.run_spec.target.model_dump(mode="json", by_alias=True, exclude_none=True)
        ),
        attempts=list(attempts),
    )
    headers: dict[str, FieldValue] = {
        amqp_names.DEAD_REASON: dead.reason,
        amqp_names.DEAD_RUN: dead.run_id,
        amqp_names.DEAD_KEY: dead.key or "",
        amqp_names.DEAD_ATTEMPTS: len(attempts),
    }
    return OutgoingMessage(
        exchange=amqp_names.DEAD,
        routing_key=f"run.{dead.tenant}",
        body=b"[" + encode(dead) + b"]",
        type=amqp_names.message_type("run.dead"),
        message_id=f"{dead.run_id}/{dead.replay_number}",
        headers=headers,
    )
