"""What is told of a run: facts for listeners, an order to stop, its whole story when it is dead."""

from collections.abc import Sequence
from datetime import datetime

from pamqp.common import FieldValue

from harebell.contract import amqp_names
from harebell.contract.control import StopRequest
from harebell.contract.dead_letter import AttemptRecord, DeadRun
from harebell.contract.events import RunEventData, make_event
from harebell.contract.ids import RunKey
from harebell.contract.json_codec import encode, encode_all
from harebell.contract.ticket import Ticket
from harebell.domain.run_states import AttemptCompletion, Reason, RunEnd, RunState
from harebell.messaging.event_publisher import OutgoingEvent
from harebell.messaging.publisher import OutgoingMessage
from harebell.messaging.topology.bus import executor_control_key


def run_event(ticket: Ticket, ended: AttemptCompletion, attempt: int) -> OutgoingEvent:
    verb = f"run.{ended.state}"
    tenant = ticket.run_spec.tenant
    at, again = ended.finished_at, ended.next_attempt_at
    fact = {  # as `RunFact` reads it
        "run_id": ticket.run_id,
        "schedule_id": ticket.schedule_id,
        "key": ticket.run_spec.key,
        "scheduled_for": ticket.scheduled_for,
        "attempt": attempt,
        "state": ended.state,
        "reason": ended.reason or ended.error_code,
        "finished_at": at if again is None else None,
        "next_attempt_at": again,
        "downstream": None if ended.healthy is None else ticket.downstream,
        "healthy": ended.healthy,
    }
    id_ = f"{ticket.run_id}/{ended.token}"
    told = make_event(tenant, verb, fact, id_=id_, subject=ticket.run_id, at=at)
    return OutgoingEvent(tenant, verb, told, attempt=ended, end=ended.end)


def run_event_without_attempt(
    tenant: str,
    key: RunKey,
    state: RunState,
    reason: Reason,
    at: datetime,
    *,
    attempt: int = 0,
    name: str | None = None,
    runs: int = 1,
) -> OutgoingEvent:
    """Of a run that ends without another attempt. `name`: its schedule's key.

    `runs`: as many as its row stands for.
    """
    verb = f"run.{state}"
    fact = RunEventData(
        run_id=str(key),
        schedule_id=key.schedule_id,
        key=name,
        scheduled_for=key.scheduled_for,
        attempt=attempt,
        state=state,
        reason=reason,
        finished_at=at,
    )
    told = make_event(tenant, verb, fact, id_=f"{key}/{at.isoformat()}", subject=str(key), at=at)
    return OutgoingEvent(tenant, verb, told, end=RunEnd(state, reason, runs))


def stop_request_message(holder: str, keys: Sequence[RunKey]) -> OutgoingMessage:
    """To the executor that holds these runs; its next renewal would tell it the same."""
    return OutgoingMessage(
        exchange=amqp_names.CONTROL,
        routing_key=executor_control_key(holder),
        body=encode_all([StopRequest(run_id=str(key)) for key in keys]),
        type=amqp_names.message_type("run.stop"),
        message_id=f"{keys[0]}/stop",
    )


def dead_letter_of_run(
    ticket: Ticket, ended: AttemptCompletion, attempts: Sequence[AttemptRecord]
) -> OutgoingMessage:
    """To the dead letters: everything in the body, the gist in headers that people can read."""
    dead = DeadRun(
        run_id=ticket.run_id,
        tenant=ticket.run_spec.tenant,
        schedule_id=ticket.schedule_id,
        scheduled_for=ticket.scheduled_for,
        key=ticket.run_spec.key,
        version=ticket.version,
        replay_number=ticket.replay_number,
        reason=ended.reason or "",
        error_code=ended.error_code or "",
        error=ended.error,
        dead_at=ended.finished_at,
        target=ticket.run_spec.target.model_dump(mode="json", by_alias=True, exclude_none=True),
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
