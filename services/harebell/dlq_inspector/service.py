"""The inspector as a process: letters are kept, commands worked through, alerts told."""

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Final

from pydantic import TypeAdapter

from harebell.bootstrap.process import run_until
from harebell.bootstrap.service_context import ServiceContext, open_service
from harebell.contract import amqp_names
from harebell.contract.accepted_commands import AcceptedCommands
from harebell.contract.errors import InvalidInput, Rejected
from harebell.contract.json_codec import decode_model, encode, encode_all
from harebell.contract.message import Message, quoted
from harebell.contract.responses import error_response
from harebell.dlq_inspector import queries
from harebell.dlq_inspector.alert_monitor import AlertMonitor
from harebell.dlq_inspector.commands import DeadLetterCommandHandler
from harebell.dlq_inspector.ingest import Ingester, run_open_count
from harebell.dlq_inspector.maintenance import run_maintenance
from harebell.dlq_inspector.replay_worker import ReplayWorker
from harebell.dlq_inspector.webhook import Webhook
from harebell.messaging.acknowledge import DONE, BatchHandler, Delivery, Outcome
from harebell.messaging.consumer import Consumer, OrderedWorker
from harebell.messaging.replies import can_reply_to, reply, send_reply
from harebell.messaging.topology.bus import ALERT, DEAD_LETTERS, DLQ
from harebell.runtime.settings import DlqInspectorSettings

ROLE: Final = "dlq_inspector"
KEPT_AT_ONCE: Final = 100  # messages of one transaction; each may be as large as the broker lets it
LINGER: Final = 0.02  # seconds in which more dead letters join a batch
REQUEST_PREFETCH: Final = 20

_CHANGE: Final = TypeAdapter(AcceptedCommands)


async def serve(settings: DlqInspectorSettings, stop: asyncio.Event) -> None:
    async with open_service(settings, ROLE, stop) as parts:
        keeper = Ingester(parts.pool, parts.clock)
        foreman = ReplayWorker(parts.pool, parts.publisher, parts.clock)
        reception = RequestHandler(parts, foreman)
        consumers = [
            _consumer(parts, DEAD_LETTERS.name, keeper.ingest, limit=KEPT_AT_ONCE, linger=LINGER),
            # one at a time: a command that is held is tried again without those around it
            _consumer(parts, DLQ.name, reception.serve, limit=1, linger=0),
            *_webhook(parts, settings),
        ]
        await run_until(
            stop,
            consuming=[consumer.run(stop) for consumer in consumers],
            background=[
                *(parts.run(), run_open_count(parts.pool), foreman.run()),
                run_maintenance(parts.pool, settings),
                AlertMonitor(parts.pool, parts.publisher, settings).run(),
            ],
        )


def _consumer(
    parts: ServiceContext, queue: str, handle: BatchHandler, *, limit: int, linger: float
) -> Consumer:
    worker = partial(OrderedWorker, handle, parts.acknowledger, limit=limit, gather_time=linger)
    consumer = Consumer(queue, parts.connect, worker, prefetch=max(limit * 2, REQUEST_PREFETCH))
    parts.health.check(queue, lambda: consumer.is_consuming)
    return consumer


def _webhook(parts: ServiceContext, settings: DlqInspectorSettings) -> list[Consumer]:
    """Of alerts, where there is one to post them to."""
    if settings.alert_webhook_url is None:
        return []
    webhook = Webhook(settings.alert_webhook_url.get_secret_value())
    return [_consumer(parts, ALERT.name, webhook.post, limit=1, linger=0)]


class RequestHandler:
    """Where commands and questions come in, and answers go out."""

    def __init__(self, parts: ServiceContext, foreman: ReplayWorker) -> None:
        self._pool = parts.pool
        self._desk = DeadLetterCommandHandler(parts.pool, parts.publisher, parts.clock, foreman)
        self._publisher = parts.publisher

    async def serve(self, deliveries: Sequence[Delivery]) -> Sequence[Outcome]:
        for delivery in deliveries:
            match delivery.message.exchange:
                case amqp_names.CHANGES:
                    await self._command(decode_model(_CHANGE, delivery.trusted_body))
                case amqp_names.QUERIES:
                    await self._question(delivery)
                case exchange:
                    raise InvalidInput(f"nothing comes here from {quoted(exchange)}")
        return [DONE] * len(deliveries)

    async def _command(self, change: AcceptedCommands) -> None:
        said = await self._desk.apply(change)
        body = encode(said[0]) if change.single else encode_all(said)
        await self._answer(change.reply_to, change.correlation_id, body)

    async def _question(self, delivery: Delivery) -> None:
        tenant, verb = amqp_names.split_key(delivery.routing_key)
        said: Message
        try:
            said = await queries.answer_query(self._pool, tenant, verb, delivery.trusted_body)
        except Rejected as error:
            said = error_response(error)
        asked = delivery.message
        await self._answer(asked.reply_to, asked.correlation_id, encode(said))

    async def _answer(self, reply_to: str | None, correlation_id: str | None, body: bytes) -> None:
        if reply_to is not None and can_reply_to(reply_to):
            outgoing = reply(reply_to, correlation_id, body, message_id=f"{correlation_id}/response")
            await send_reply(self._publisher, outgoing)
