"""Row 31: an upgrade of all services, with waiting tickets in the form of another release."""

from collections.abc import AsyncIterator, Callable
from typing import Any, Final

import aio_pika
import orjson
from aio_pika.abc import AbstractIncomingMessage, AbstractQueue
from tests.chaos.environment import Environment, Member
from tests.chaos.faults.messages import Json, open_channel, tickets_in
from tests.chaos.faults.queues import TICKET_RECOVERY, queues
from tests.chaos.faults.registry import fault

from harebell.contract.ticket import Ticket
from harebell.dev.plan import ServiceKind

# The order of the manual: the reader of a message is never older than its writer.
ORDER: Final = (
    ServiceKind.EXECUTOR,
    ServiceKind.DISPATCHER,
    ServiceKind.DLQ_INSPECTOR,
    ServiceKind.TICKER,
    ServiceKind.INTAKE,
)
TICKET_READERS: Final = (ServiceKind.EXECUTOR, ServiceKind.DISPATCHER)
TICKET_QUEUES: Final = ("harebell.work.", "harebell.dispatcher")  # of these readers
UNKNOWN_TYPE: Final = "harebell.ticket.batch.v9"

Rewrite = Callable[[Json], Json]


def as_older_release(ticket: Json) -> Json:
    """Return the ticket without default values, the fewest fields that a release writes."""
    read = Ticket.model_validate(ticket)
    fewest: Json = read.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    return fewest


def as_later_release(ticket: Json) -> Json:
    """Return the ticket with unknown fields."""
    return {**ticket, "later": {"than": "this"}, "run_spec": {**ticket["run_spec"], "later": [1]}}


def _upgrade(
    row: str, text: str, rewrite: Rewrite, *, message_type: str | None = None, **more: Any
) -> None:
    @fault(row, f"an upgrade, and tickets {text}", **more)
    async def inject(environment: Environment) -> AsyncIterator[None]:
        """Stop the readers of tickets, rewrite the waiting tickets, and replace all services."""
        for member in _members(environment, *TICKET_READERS):
            await environment.stop(member)
        yield
        rewritten = await _rewrite_all(environment, rewrite, message_type)
        environment.measurements["rewritten"] = rewritten
        for member in _members(environment, *ORDER):
            await environment.stop(member)
            await environment.start(member)


_upgrade("31a", "in the form of an older release", as_older_release)
_upgrade("31b", "in the form of a later release", as_later_release)
_upgrade("31c", "of an unknown version", dict, message_type=UNKNOWN_TYPE, recovery=TICKET_RECOVERY)


def _members(environment: Environment, *kinds: ServiceKind) -> list[Member]:
    return [member for kind in kinds for member in environment.members_of(kind)]


async def _rewrite_all(environment: Environment, rewrite: Rewrite, message_type: str | None) -> int:
    """Rewrite every waiting message and return the number of messages."""
    count = 0
    async with open_channel(environment) as channel:
        for name in await queues(environment, *TICKET_QUEUES):
            queue = await channel.get_queue(name, ensure=False)
            waiting = [message async for message in _get_all(queue)]
            for message in waiting:
                rewritten = _rewritten(message, rewrite, message_type)
                await channel.default_exchange.publish(rewritten, name)
                await message.ack()
            count += len(waiting)
    return count


async def _get_all(queue: AbstractQueue) -> AsyncIterator[AbstractIncomingMessage]:
    while (message := await queue.get(fail=False)) is not None:
        yield message


def _rewritten(
    message: AbstractIncomingMessage, rewrite: Rewrite, message_type: str | None
) -> aio_pika.Message:
    """Return the message with rewritten tickets. An invalid message of an earlier round stays."""
    tickets = tickets_in(message.body)
    return aio_pika.Message(
        orjson.dumps([rewrite(ticket) for ticket in tickets]) if tickets else message.body,
        headers=message.headers,
        content_type=message.content_type,
        type=message_type or message.type,
        message_id=message.message_id,
        app_id=message.app_id,
        delivery_mode=2,
    )
