"""The inspector as a process: letters are kept, commands worked through, alerts told."""

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Final

from pydantic import TypeAdapter

from harebell.contract import names
from harebell.contract.answers import refusal
from harebell.contract.changes import Change
from harebell.contract.codec import encode, encode_all, read
from harebell.contract.errors import Malformed, Rejected
from harebell.contract.message import Message, shown
from harebell.dlq_inspector import questions
from harebell.dlq_inspector.alerting import Watchman
from harebell.dlq_inspector.desk import Desk
from harebell.dlq_inspector.foreman import Foreman
from harebell.dlq_inspector.housekeeping import keep_house
from harebell.dlq_inspector.keeping import Keeper, keep_count
from harebell.dlq_inspector.webhook import Webhook
from harebell.kernel.amqp.consume import DONE, BatchHandler, Delivery, Outcome
from harebell.kernel.amqp.replies import answer, answerable, reply
from harebell.kernel.amqp.session import Consumer, Ordered
from harebell.kernel.bus import ALERT, DEAD_LETTERS, DLQ
from harebell.kernel.lifecycle import Parts, open_parts, run_until
from harebell.kernel.settings import InspectorSettings

ROLE: Final = "dlq_inspector"
KEPT_AT_ONCE: Final = 100  # messages of one transaction; each may be as large as the broker lets it
LINGER: Final = 0.02  # seconds in which more dead letters join a batch
DESK_PREFETCH: Final = 20

_CHANGE: Final = TypeAdapter(Change)


async def serve(settings: InspectorSettings, stop: asyncio.Event) -> None:
    async with open_parts(settings, ROLE, stop) as parts:
        keeper = Keeper(parts.pool, parts.clock)
        foreman = Foreman(parts.pool, parts.publisher, parts.clock)
        reception = Reception(parts, foreman)
        consumers = [
            _consumer(parts, DEAD_LETTERS.name, keeper.keep, limit=KEPT_AT_ONCE, linger=LINGER),
            # one at a time: a command that is held is tried again without those around it
            _consumer(parts, DLQ.name, reception.serve, limit=1, linger=0),
            *_webhook(parts, settings),
        ]
        await run_until(
            stop,
            consuming=[consumer.run(stop) for consumer in consumers],
            background=[
                *(parts.keep(), keep_count(parts.pool), foreman.work()),
                keep_house(parts.pool, settings),
                Watchman(parts.pool, parts.publisher, settings).watch(),
            ],
        )


def _consumer(
    parts: Parts, queue: str, handle: BatchHandler, *, limit: int, linger: float
) -> Consumer:
    worker = partial(Ordered, handle, parts.settler, limit=limit, linger=linger)
    consumer = Consumer(queue, parts.connect, worker, prefetch=max(limit * 2, DESK_PREFETCH))
    parts.health.check(queue, lambda: consumer.is_consuming)
    return consumer


def _webhook(parts: Parts, settings: InspectorSettings) -> list[Consumer]:
    """Of alerts, where there is one to post them to."""
    if settings.alert_webhook_url is None:
        return []
    webhook = Webhook(settings.alert_webhook_url.get_secret_value())
    return [_consumer(parts, ALERT.name, webhook.post, limit=1, linger=0)]


class Reception:
    """Where commands and questions come in, and answers go out."""

    def __init__(self, parts: Parts, foreman: Foreman) -> None:
        self._pool = parts.pool
        self._desk = Desk(parts.pool, parts.publisher, parts.clock, foreman)
        self._publisher = parts.publisher

    async def serve(self, deliveries: Sequence[Delivery]) -> Sequence[Outcome]:
        for delivery in deliveries:
            match delivery.message.exchange:
                case names.CHANGES:
                    await self._command(read(_CHANGE, delivery.own_body))
                case names.QUERIES:
                    await self._question(delivery)
                case exchange:
                    raise Malformed(f"nothing comes here from {shown(exchange)}")
        return [DONE] * len(deliveries)

    async def _command(self, change: Change) -> None:
        said = await self._desk.apply(change)
        body = encode(said[0]) if change.single else encode_all(said)
        await self._answer(change.reply_to, change.correlation_id, body)

    async def _question(self, delivery: Delivery) -> None:
        tenant, verb = names.split_key(delivery.routing_key)
        said: Message
        try:
            said = await questions.answer(self._pool, tenant, verb, delivery.own_body)
        except Rejected as error:
            said = refusal(error)
        asked = delivery.message
        await self._answer(asked.reply_to, asked.correlation_id, encode(said))

    async def _answer(self, reply_to: str | None, correlation_id: str | None, body: bytes) -> None:
        if reply_to is not None and answerable(reply_to):
            outgoing = reply(reply_to, correlation_id, body, name=f"{correlation_id}/answer")
            await answer(self._publisher, outgoing)
