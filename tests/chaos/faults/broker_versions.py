"""Row 31: an upgrade, and meanwhile tickets on their way as another release writes them."""

from collections.abc import AsyncIterator, Callable
from typing import Any, Final

import aio_pika
import orjson
from aio_pika.abc import AbstractIncomingMessage, AbstractQueue
from tests.chaos.environment import Member, Scene
from tests.chaos.faults.messages import channel
from tests.chaos.faults.queues import SWEEP, queues
from tests.chaos.faults.registry import fault

from harebell.contract.ticket import Ticket
from harebell.dev.plan import ServiceKind

# As the manual says it: whoever reads a message is never older than whoever writes it.
ORDER: Final = (
    ServiceKind.EXECUTOR,
    ServiceKind.DISPATCHER,
    ServiceKind.DLQ_INSPECTOR,
    ServiceKind.TICKER,
    ServiceKind.INTAKE,
)
READERS: Final = (ServiceKind.EXECUTOR, ServiceKind.DISPATCHER)  # of tickets
WAITING: Final = ("harebell.work.", "harebell.dispatcher")  # where their tickets are
UNKNOWN: Final = "harebell.ticket.bundle.v9"

Json = dict[str, Any]
Rewrite = Callable[[Json], Json]


def older(ticket: Json) -> Json:
    """Without all that has a default: so did the first release write it at its barest."""
    read = Ticket.model_validate(ticket)
    bare: Json = read.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    return bare


def later(ticket: Json) -> Json:
    """With fields that nobody knows yet."""
    return {**ticket, "later": {"than": "this"}, "run_spec": {**ticket["run_spec"], "later": [1]}}


def _upgrade(row: str, what: str, rewrite: Rewrite, type_: str | None = None, **more: Any) -> None:
    @fault(row, f"an upgrade, and tickets {what}", **more)
    async def strike(scene: Scene) -> AsyncIterator[None]:
        """Those that were handed over while their readers were being replaced."""
        for member in _members(scene, *READERS):
            await scene.stop(member)
        yield
        scene.notes["rewritten"] = await _rewrite_all(scene, rewrite, type_)
        for member in _members(scene, *ORDER):
            await scene.stop(member)
            await scene.start(member)


_upgrade("31a", "as an older release wrote them", older)
_upgrade("31b", "as a later release writes them", later)
_upgrade("31c", "of a version that nobody knows", dict, UNKNOWN, recovery=SWEEP)


def _members(scene: Scene, *kinds: ServiceKind) -> list[Member]:
    return [member for kind in kinds for member in scene.all_of(kind)]


async def _rewrite_all(scene: Scene, rewrite: Rewrite, type_: str | None) -> int:
    """Whatever waits there now; how many messages those were."""
    count = 0
    async with channel(scene) as wire:
        for name in await queues(scene, *WAITING):
            queue = await wire.get_queue(name, ensure=False)
            waiting = [message async for message in _taken(queue)]
            for message in waiting:
                again = _again(message, rewrite, type_)
                await wire.default_exchange.publish(again, name)
                await message.ack()
            count += len(waiting)
    return count


async def _taken(queue: AbstractQueue) -> AsyncIterator[AbstractIncomingMessage]:
    while (message := await queue.get(fail=False)) is not None:
        yield message


def _again(
    message: AbstractIncomingMessage, rewrite: Rewrite, type_: str | None
) -> aio_pika.Message:
    body = orjson.dumps([rewrite(ticket) for ticket in orjson.loads(message.body)])
    return aio_pika.Message(
        body,
        headers=message.headers,
        content_type=message.content_type,
        type=type_ or message.type,
        message_id=message.message_id,
        app_id=message.app_id,
        delivery_mode=2,
    )
