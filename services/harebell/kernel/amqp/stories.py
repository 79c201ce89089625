"""What is told of a run: facts for listeners, an order to stop, its whole story when it is dead."""

from collections.abc import Sequence
from datetime import datetime

from pamqp.common import FieldValue

from harebell.contract import names
from harebell.contract.codec import encode, encode_all
from harebell.contract.dead import AttemptRecord, DeadRun
from harebell.contract.events import RunFact, event
from harebell.contract.identity import RunKey
from harebell.contract.stop import Stop
from harebell.contract.ticket import Ticket
from harebell.kernel.amqp.events import Fact
from harebell.kernel.amqp.publish import Outgoing
from harebell.kernel.bus import control_key
from harebell.kernel.ledger import End, Ending, Reason, RunState


def fact_of(ticket: Ticket, ended: Ending, attempt: int) -> Fact:
    verb = f"run.{ended.state}"
    tenant = ticket.work.tenant
    at, again = ended.finished_at, ended.next_attempt_at
    fact = {  # as `RunFact` reads it
        "run_id": ticket.run_id,
        "schedule_id": ticket.schedule_id,
        "key": ticket.work.key,
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
    told = event(tenant, verb, fact, id_=id_, subject=ticket.run_id, at=at)
    return Fact(tenant, verb, told, attempt=ended, end=ended.end)


def fact_of_unattempted(
    tenant: str,
    key: RunKey,
    state: RunState,
    reason: Reason,
    at: datetime,
    *,
    attempt: int = 0,
    name: str | None = None,
    runs: int = 1,
) -> Fact:
    """Of a run that ends without another attempt. `name`: its schedule's key.

    `runs`: as many as its row stands for.
    """
    verb = f"run.{state}"
    fact = RunFact(
        run_id=str(key),
        schedule_id=key.schedule_id,
        key=name,
        scheduled_for=key.scheduled_for,
        attempt=attempt,
        state=state,
        reason=reason,
        finished_at=at,
    )
    told = event(tenant, verb, fact, id_=f"{key}/{at.isoformat()}", subject=str(key), at=at)
    return Fact(tenant, verb, told, end=End(state, reason, runs))


def stop_message(holder: str, keys: Sequence[RunKey]) -> Outgoing:
    """To the executor that holds these runs; its next renewal would tell it the same."""
    return Outgoing(
        exchange=names.CONTROL,
        routing_key=control_key(holder),
        body=encode_all([Stop(run_id=str(key)) for key in keys]),
        type=names.message_type("run.stop"),
        message_id=f"{keys[0]}/stop",
    )


def dead_message(ticket: Ticket, ended: Ending, attempts: Sequence[AttemptRecord]) -> Outgoing:
    """To the dead letters: everything in the body, the gist in headers that people can read."""
    dead = DeadRun(
        run_id=ticket.run_id,
        tenant=ticket.work.tenant,
        schedule_id=ticket.schedule_id,
        scheduled_for=ticket.scheduled_for,
        key=ticket.work.key,
        version=ticket.version,
        series=ticket.series,
        reason=ended.reason or "",
        error_code=ended.error_code or "",
        error=ended.error,
        dead_at=ended.finished_at,
        target=ticket.work.target.model_dump(mode="json", by_alias=True, exclude_none=True),
        attempts=list(attempts),
    )
    headers: dict[str, FieldValue] = {
        names.DEAD_REASON: dead.reason,
        names.DEAD_RUN: dead.run_id,
        names.DEAD_KEY: dead.key or "",
        names.DEAD_ATTEMPTS: len(attempts),
    }
    return Outgoing(
        exchange=names.DEAD,
        routing_key=f"run.{dead.tenant}",
        body=b"[" + encode(dead) + b"]",
        type=names.message_type("run.dead"),
        message_id=f"{dead.run_id}/{dead.series}",
        headers=headers,
    )
