"""What is told of a run that ended: its fact for listeners, its whole story when it is dead."""

from collections.abc import Sequence

from pamqp.common import FieldValue

from harebell.contract import names
from harebell.contract.codec import encode
from harebell.contract.dead import AttemptRecord, DeadRun
from harebell.contract.events import RunFact, event
from harebell.contract.ticket import Ticket
from harebell.kernel.amqp.events import Fact
from harebell.kernel.amqp.publish import Outgoing
from harebell.kernel.ledger import Ending


def fact_of(ticket: Ticket, ended: Ending, attempt: int) -> Fact:
    verb = f"run.{ended.state}"
    tenant = ticket.work.tenant
    retrying = ended.next_attempt_at is not None
    fact = RunFact(
        run_id=ticket.run_id,
        schedule_id=ticket.schedule_id,
        key=ticket.work.key,
        scheduled_for=ticket.scheduled_for,
        attempt=attempt,
        state=ended.state,
        reason=ended.reason or ended.error_code,
        finished_at=None if retrying else ended.finished_at,
        next_attempt_at=ended.next_attempt_at,
    )
    id_ = f"{ticket.run_id}/{ended.token}"
    at = ended.finished_at
    return Fact(tenant, verb, event(tenant, verb, fact, id_=id_, subject=ticket.run_id, at=at))


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
