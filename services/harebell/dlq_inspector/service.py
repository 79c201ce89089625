"""The process of the dlq_inspector: its consumers, its background loops and its replies."""

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Final

import asyncpg

from harebell.bootstrap.parts import Loop, ServiceParts
from harebell.bootstrap.service_context import ServiceContext, open_service, queues_of_tenants
from harebell.contract import amqp_names
from harebell.contract.accepted_commands import AcceptedCommands
from harebell.contract.errors import Rejected
from harebell.contract.json_codec import encode, encode_all
from harebell.contract.message import Message
from harebell.contract.responses import error_response
from harebell.dlq_inspector.alert_monitor import AlertMonitor
from harebell.dlq_inspector.commands import DeadLetterCommandHandler
from harebell.dlq_inspector.ingest import Ingester, run_open_count
from harebell.dlq_inspector.maintenance import run_maintenance
from harebell.dlq_inspector.model.owner import tenant_of_undelivered
from harebell.dlq_inspector.parked import ParkingQueue
from harebell.dlq_inspector.queries import answer_query
from harebell.dlq_inspector.replay_worker import ReplayWorker
from harebell.dlq_inspector.webhook import AlertSigner, Webhook
from harebell.messaging.accepted_messages import (
    CommandReplies,
    granting_credits,
    read_messages,
    tenant_of,
)
from harebell.messaging.acknowledge import DONE, BatchHandler, Delivery, Outcome
from harebell.messaging.consumer import Consumer, OptionalQueues, OrderedWorker
from harebell.messaging.event_publisher import RejectionEvents
from harebell.messaging.fair_worker import FairConcurrentWorker
from harebell.messaging.isolation import isolating
from harebell.messaging.sender_check import SenderCheck, is_foreign
from harebell.messaging.topology.bus import (
    ALERT,
    CORE,
    DEAD_LETTERS,
    DLQ,
    UNDELIVERED_REQUESTS,
    tenant_dlq_queue,
    undelivered_queue,
    undelivered_queue_of_delayed,
)
from harebell.runtime.secret_files import SecretFiles
from harebell.runtime.settings import DlqInspectorSettings
from harebell.runtime.signing_keys import SigningKeys

ROLE: Final = "dlq_inspector"
MAX_INGEST_BATCH: Final = 100  # messages of one transaction; the broker bounds their sizes
GATHER_TIME: Final = 0.02  # seconds in which further messages may join a batch
# The windows of three tenants with commands of 300 bytes, or one command of each tenant.
REQUEST_PREFETCH: Final = 500
QUERY_PREFETCH: Final = 20  # unacknowledged queries of each tenant's queue
UNDELIVERED_PREFETCH: Final = 20  # of each owner; the worker takes them in the order of arrival
MAX_CONCURRENT_REQUESTS: Final = 4  # of different tenants; each needs a database connection
ALERT_PREFETCH: Final = 20


async def serve(settings: DlqInspectorSettings, stop: asyncio.Event) -> None:
    """Run the dlq_inspector until the stop."""
    async with open_service(settings, ROLE, stop, topology=CORE) as context:
        await dlq_inspector_parts(settings, context).run(context)


def dlq_inspector_parts(settings: DlqInspectorSettings, context: ServiceContext) -> ServiceParts:
    """Build the consumers and the loops of the dlq_inspector."""
    pool, publisher = context.pool, context.publisher
    ingester = Ingester(
        pool=pool,
        clock=context.clock,
        is_trusted=context.is_from_service,
        owner_of=lambda queue: tenant_of_undelivered(queue, context.policies.current),
    )
    replay_worker = ReplayWorker(pool=pool, publisher=publisher, clock=context.clock)
    parking = ParkingQueue(context.connect)
    requests = RequestHandler(
        pool=pool,
        parking=parking,
        replies=CommandReplies(context.replies, settings.identity_mode),
        command_handler=DeadLetterCommandHandler(
            pool=pool, publisher=publisher, clock=context.clock, replay_worker=replay_worker
        ),
        sender_check=SenderCheck(
            replies=context.replies,
            clock=context.clock,
            policy=context.sender_policy,
            rejection_events=RejectionEvents(publisher),
        ),
    )
    monitor = AlertMonitor(
        pool=pool, publisher=publisher, settings=settings, parked=lambda: parking.count
    )
    handle_requests = granting_credits(isolating(requests.handle, requests.answer), publisher)
    consumers = {
        DEAD_LETTERS.name: _ingest_consumer(context, DEAD_LETTERS.name, ingester),
        UNDELIVERED_REQUESTS.name: _ingest_consumer(
            context,
            UNDELIVERED_REQUESTS.name,
            ingester,
            optional=OptionalQueues(
                names=lambda: undelivered_queues(context), prefetch=UNDELIVERED_PREFETCH
            ),
        ),
        DLQ.name: _request_consumer(context, handle_requests),
    }
    loops: dict[str, Loop] = {
        "open_count": partial(run_open_count, pool),
        "replay_jobs": replay_worker.run,
        "maintenance": partial(run_maintenance, pool, settings, context.policies),
        "alerts": monitor.run,
        "parking": parking.run,
    }
    if (webhook := _webhook(context, settings)) is not None:
        consumers[ALERT.name] = _alert_consumer(context, webhook.store)
        loops["webhook"] = webhook.run
    return ServiceParts(consumers=consumers, loops=loops)


def undelivered_queues(context: ServiceContext) -> list[str]:
    """Return the names of the queues of what the queues of each owner dead-letter."""
    of_tenants = map(undelivered_queue, context.tenants_with_queues)
    delayed = map(undelivered_queue_of_delayed, context.policies.current.delayed_exchanges)
    return [each.name for each in (*of_tenants, *delayed)]


def _ingest_consumer(
    context: ServiceContext,
    queue: str,
    ingester: Ingester,
    *,
    optional: OptionalQueues | None = None,
) -> Consumer:
    worker = partial(
        OrderedWorker,
        ingester.ingest,
        context.acknowledger,
        limit=MAX_INGEST_BATCH,
        gather_time=GATHER_TIME,
    )
    return Consumer(
        queue, context.connect, worker, prefetch=2 * MAX_INGEST_BATCH, optional=optional
    )


def _webhook(context: ServiceContext, settings: DlqInspectorSettings) -> Webhook | None:
    if settings.alert_webhook_url is None:
        return None
    signer = AlertSigner(
        keys=SigningKeys(SecretFiles(settings.secrets_dir)),
        names=settings.alert_signing,
        clock=context.clock,
    )
    return Webhook(settings.alert_webhook_url.get_secret_value(), context.pool, signer)


def _request_consumer(context: ServiceContext, handle: BatchHandler) -> Consumer:
    """Return the consumer that serves the tenants in turn, and the requests of each in order."""

    # one delivery per batch, because a retried command must not repeat the commands next to it
    async def handle_one(delivery: Delivery) -> Outcome:
        return (await handle([delivery]))[0]

    worker = partial(
        FairConcurrentWorker,
        handle_one,
        context.acknowledger,
        limit=MAX_CONCURRENT_REQUESTS,
        limit_of=lambda _: 1,
        flow_of=requesting_tenant,
    )
    return Consumer(
        DLQ.name,
        context.connect,
        worker,
        prefetch=REQUEST_PREFETCH,
        optional=queues_of_tenants(context, tenant_dlq_queue, prefetch=QUERY_PREFETCH),
        accepts=lambda message: (
            message.exchange != amqp_names.CHANGES or context.is_from_service(message)
        ),
    )


def _alert_consumer(context: ServiceContext, handle: BatchHandler) -> Consumer:
    worker = partial(OrderedWorker, handle, context.acknowledger, limit=1, gather_time=0)
    return Consumer(
        ALERT.name,
        context.connect,
        worker,
        prefetch=ALERT_PREFETCH,
        accepts=context.is_from_service,
    )


def requesting_tenant(delivery: Delivery) -> str:
    """Return the tenant of a query or of a command with a credit, or else an empty text."""
    if delivery.message.exchange == amqp_names.CHANGES:
        return tenant_of(delivery)
    return delivery.routing_key.partition(".")[0]


class RequestHandler:
    """The handler of the queue `harebell.dlq` and of the queues of tenants beside it.

    `harebell.dlq` contains accepted commands and queries, and the others contain only queries.
    """

    def __init__(
        self,
        *,
        pool: asyncpg.Pool,
        parking: ParkingQueue,
        replies: CommandReplies,
        command_handler: DeadLetterCommandHandler,
        sender_check: SenderCheck,
    ) -> None:
        self._pool = pool
        self._parking = parking
        self._replies = replies
        self._command_handler = command_handler
        self._sender_check = sender_check

    async def handle(self, deliveries: Sequence[Delivery]) -> Sequence[Outcome]:
        """Apply each command and answer each query, in order.

        Only intake may publish to the exchange of changes, and intake has checked the sender.
        """
        for delivery in deliveries:
            if delivery.message.exchange != amqp_names.CHANGES:
                await self._answer(delivery)
            elif not is_foreign(delivery, amqp_names.CHANGES):
                for commands in read_messages(delivery):
                    await self._apply(commands)
        return [DONE] * len(deliveries)

    async def answer(self, delivery: Delivery, error: Rejected) -> None:
        """Send the error of a delivery to the sender of its command or query."""
        if delivery.message.exchange == amqp_names.CHANGES:
            await self._replies.answer(delivery, error)
        else:
            await self._sender_check.answer(delivery, error, shared_exchange=amqp_names.QUERIES)

    async def _apply(self, commands: AcceptedCommands) -> None:
        responses = await self._command_handler.apply(commands)
        self._replies.send(
            commands, encode(responses[0]) if commands.single else encode_all(responses)
        )

    async def _answer(self, delivery: Delivery) -> None:
        try:
            sender = self._sender_check.sender_of(delivery, amqp_names.QUERIES)
        except Rejected as error:
            await self._sender_check.refuse(delivery, error)
            return
        _, verb = amqp_names.split_key(delivery.routing_key)
        response: Message
        try:
            response = await answer_query(
                self._pool,
                self._parking,
                tenant=sender.tenant,
                verb=verb,
                body=delivery.trusted_body,
            )
        except Rejected as error:
            response = error_response(error)
        self._sender_check.reply(delivery, sender, response)
