"""The intake service: ordered consumers of commands and of delayed messages, and one of queries."""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Final

from aio_pika.abc import AbstractIncomingMessage

from harebell.bootstrap.parts import Loop, ServiceParts
from harebell.bootstrap.service_context import ServiceContext, open_service, queues_of_tenants
from harebell.contract import amqp_names
from harebell.contract.amqp_names import DELAYED, delayed_queue_name, is_delayed_queue
from harebell.contract.types import instant_text
from harebell.intake.commands.handler import CommandHandler
from harebell.intake.commands.rules import IntakePolicy, TargetPolicy
from harebell.intake.delayed.handler import DelayedHandler
from harebell.intake.queries.handler import QueryHandler
from harebell.intake.queries.store import IntakeStore
from harebell.messaging.accepted_messages import WINDOW, TenantWindows, read_credits
from harebell.messaging.acknowledge import Delivery
from harebell.messaging.consumer import Consumer, OptionalQueues
from harebell.messaging.event_publisher import RejectionEvents
from harebell.messaging.exclusive_consumer import ExclusiveQueue, consume_exclusively
from harebell.messaging.fair_worker import FairConcurrentWorker, FairWorker
from harebell.messaging.isolation import answering, isolating
from harebell.messaging.sender_check import SenderCheck
from harebell.messaging.topology.bus import (
    CORE,
    INTAKE,
    QUERY,
    intake_control_queue,
    tenant_intake_queue,
    tenant_query_queue,
)
from harebell.runtime.clock import thread_cpu
from harebell.runtime.settings import IntakeSettings
from harebell.storage.tenant_usage import UsageWriter

MAX_BATCH: Final = 100  # messages that intake checks and then publishes together
MAX_BATCH_BYTES: Final = 64 * 1024  # of a batch with more than one message
COMMAND_PREFETCH: Final = 2 * MAX_BATCH  # the next batch is in memory when a batch is done
MAX_DELAYED_BATCH: Final = 250  # delayed messages that intake accepts together
DELAYED_PREFETCH: Final = 4 * MAX_DELAYED_BATCH
# Seconds between two batches of delayed messages that are not full. A batch costs work in every
# service, and the delay of a message already runs while the message waits for its batch.
DELAYED_INTERVAL: Final = 0.02
DELAYED_WINDOW: Final = 1024 * 1024  # bytes of delayed messages that the ticker has not applied
TENANT_PREFETCH: Final = 50  # unacknowledged messages of each tenant's queue
MAX_CONCURRENT_QUERIES: Final = 20
MAX_SHARED_QUERIES: Final = 15  # of these, of one tenant in the shared queue
# A query of another tenant shares the processor with these, and a few more would add no throughput.
MAX_TENANT_QUERIES: Final = 5
# A short flood of one tenant in the shared queue delays the queries within this prefetch little.
SHARED_QUERY_PREFETCH: Final = 100
SHARED_FLOW: Final = "shared/"  # no name of a queue contains a slash


def query_flow(delivery: Delivery) -> str:
    """Return the queue of a query, and for the shared queue also its tenant."""
    if delivery.queue != QUERY.name:
        return delivery.queue
    return f"{SHARED_FLOW}{delivery.routing_key.partition('.')[0]}"


def max_queries(flow: str) -> int:
    """Return the number of queries of a flow that intake answers at the same time."""
    return MAX_SHARED_QUERIES if flow.startswith(SHARED_FLOW) else MAX_TENANT_QUERIES


async def serve(settings: IntakeSettings, stop: asyncio.Event) -> None:
    """Run intake until the stop."""
    async with open_service(settings, "intake", stop, topology=CORE, hot=False) as context:
        await intake_parts(settings, context).run(context)


def intake_parts(
    settings: IntakeSettings, context: ServiceContext, *, cpu: Callable[[], float] = thread_cpu
) -> ServiceParts:
    """Build the consumers and the loops of intake. `cpu` bounds the check of each message."""
    rejection_events = RejectionEvents(context.publisher)
    sender_check = SenderCheck(
        replies=context.replies,
        clock=context.clock,
        policy=context.sender_policy,
        rejection_events=rejection_events,
    )
    targets = TargetPolicy(settings.egress, settings.known_tasks, context.policies)
    policy = IntakePolicy(targets, settings.default_when)
    windows = TenantWindows(shared_queue=INTAKE.name, size_of=_window_of)
    credit_queue = ExclusiveQueue(intake_control_queue(settings.instance_id), bindings=())
    usage = UsageWriter(context.pool)
    command_handler = CommandHandler(
        publisher=context.publisher,
        clock=context.clock,
        policy=policy,
        replies=context.replies,
        sender_check=sender_check,
        rejection_events=rejection_events,
        windows=windows,
        credit_queue=credit_queue.queue,
        usage=usage.counts,
        cpu=cpu,
    )
    has_tenant_queues = settings.topology_mode == "check"
    delayed_handler = DelayedHandler(
        publisher=context.publisher,
        clock=context.clock,
        policy=policy,
        usage=usage.counts,
        windows=windows if has_tenant_queues else None,
        credit_queue=credit_queue.queue,
        broker_timestamps=settings.broker_timestamps,
    )
    query_handler = QueryHandler(
        clock=context.clock,
        store=IntakeStore(context.pool),
        target_policy=targets,
        sender_check=sender_check,
    )
    commands = Consumer(
        INTAKE.name,
        context.connect,
        lambda: FairWorker(
            isolating(
                command_handler.handle,
                partial(sender_check.answer, shared_exchange=amqp_names.COMMANDS),
            ),
            context.acknowledger,
            limit=MAX_BATCH,
            max_bytes=MAX_BATCH_BYTES,
            windows=windows,
        ),
        prefetch=COMMAND_PREFETCH,
        needs_idle_check=False,
        optional=queues_of_tenants(context, tenant_intake_queue, prefetch=TENANT_PREFETCH),
    )
    delayed = Consumer(
        None,
        context.connect,
        lambda: FairWorker(
            # The delivery tags of each session begin again.
            partial(delayed_handler.handle, session=instant_text(context.clock.now())),
            context.acknowledger,
            limit=MAX_DELAYED_BATCH,
            max_bytes=MAX_BATCH_BYTES,
            windows=windows if has_tenant_queues else None,
            interval=DELAYED_INTERVAL,
        ),
        needs_idle_check=False,
        optional=OptionalQueues(
            names=lambda: [
                delayed_queue_name(each) for each in context.policies.current.delayed_exchanges
            ],
            prefetch=DELAYED_PREFETCH,
        ),
    )
    queries = Consumer(
        QUERY.name,
        context.connect,
        lambda: FairConcurrentWorker(
            answering(
                query_handler.handle,
                partial(sender_check.answer, shared_exchange=amqp_names.QUERIES),
            ),
            context.acknowledger,
            limit=MAX_CONCURRENT_QUERIES,
            limit_of=max_queries,
            flow_of=query_flow,
        ),
        prefetch=SHARED_QUERY_PREFETCH,
        optional=queues_of_tenants(context, tenant_query_queue, prefetch=MAX_CONCURRENT_QUERIES),
    )
    return ServiceParts(
        consumers={INTAKE.name: commands, DELAYED: delayed, QUERY.name: queries},
        loops={
            "usage": usage.run,
            **(_credits(context, credit_queue, windows) if has_tenant_queues else {}),
        },
    )


def _window_of(queue: str) -> int:
    return DELAYED_WINDOW if is_delayed_queue(queue) else WINDOW


def _credits(
    context: ServiceContext, queue: ExclusiveQueue, windows: TenantWindows
) -> dict[str, Loop]:
    """Return the loop that receives the credits for the queues of tenants."""

    async def reset() -> None:
        windows.reset()

    async def grant(message: AbstractIncomingMessage) -> None:
        windows.grant(read_credits(message.body))

    async def receive() -> None:
        await consume_exclusively(
            context.connect, queue, grant, accepts=context.is_from_service, on_open=reset
        )

    return {"credits": receive}
