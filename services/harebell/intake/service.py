"""The intake service: one ordered consumer of commands and one concurrent consumer of queries."""

import asyncio
from typing import Final

from aio_pika.abc import AbstractIncomingMessage

from harebell.bootstrap.process import run_until
from harebell.bootstrap.service_context import open_service
from harebell.intake.commands.definition import TargetPolicy
from harebell.intake.commands.handler import CommandHandler
from harebell.intake.commands.rules import IntakePolicy
from harebell.intake.commands.window import TenantWindows
from harebell.intake.queries.handler import QueryHandler
from harebell.intake.queries.store import IntakeStore
from harebell.messaging.consumer import ConcurrentWorker, Consumer, OptionalQueues
from harebell.messaging.credits import read_credits
from harebell.messaging.exclusive_consumer import ExclusiveQueue, consume_exclusively
from harebell.messaging.fair_worker import FairWorker
from harebell.messaging.rejection_events import RejectionEvents
from harebell.messaging.sender_check import SenderCheck
from harebell.messaging.topology.bus import (
    INTAKE,
    QUERY,
    intake_control_queue,
    tenant_intake_queue,
)
from harebell.runtime.settings import IntakeSettings
from harebell.storage.engine import open_engine

MAX_BATCH: Final = 100  # messages that intake checks and then publishes together
MAX_BATCH_BYTES: Final = 256 * 1024  # of a batch with more than one message
COMMAND_PREFETCH: Final = 2 * MAX_BATCH  # the next batch is in memory when a batch is done
TENANT_PREFETCH: Final = 50  # unacknowledged messages of each tenant's queue
MAX_CONCURRENT_QUERIES: Final = 20


async def serve(settings: IntakeSettings, stop: asyncio.Event) -> None:
    """Run intake until the stop."""
    engine = open_engine(
        settings.database_url.get_secret_value(),
        name=settings.instance_id,
        bounds=settings.pool_bounds,
    )
    async with open_service(settings, "intake", stop) as context:
        rejection_events = RejectionEvents(context.publisher)
        sender_check = SenderCheck(
            publisher=context.publisher,
            clock=context.clock,
            policy=context.sender_policy,
            rejection_events=rejection_events,
        )
        targets = TargetPolicy(settings.egress, settings.known_tasks, context.policies)
        policy = IntakePolicy(targets, settings.default_when)
        windows = TenantWindows(shared_queue=INTAKE.name)
        credit_queue = ExclusiveQueue(intake_control_queue(settings.instance_id), bindings=())
        command_handler = CommandHandler(
            publisher=context.publisher,
            clock=context.clock,
            policy=policy,
            sender_check=sender_check,
            rejection_events=rejection_events,
            windows=windows,
            credit_queue=credit_queue.queue,
        )

        def tenant_queues() -> list[str]:
            tenants = settings.intake_tenants | context.policies.current.tenants.keys()
            return [tenant_intake_queue(tenant).name for tenant in tenants]

        async def reset_windows() -> None:
            windows.reset()

        async def grant(message: AbstractIncomingMessage) -> None:
            windows.grant(read_credits(message.body))

        has_tenant_queues = settings.topology_mode == "check"
        consuming_credits = (
            [consume_exclusively(context.connect, credit_queue, grant, on_open=reset_windows)]
            if has_tenant_queues
            else []
        )
        query_handler = QueryHandler(
            publisher=context.publisher,
            clock=context.clock,
            store=IntakeStore(engine),
            target_policy=targets,
            sender_check=sender_check,
        )
        commands = Consumer(
            INTAKE.name,
            context.connect,
            lambda: FairWorker(
                command_handler.handle,
                context.acknowledger,
                limit=MAX_BATCH,
                max_bytes=MAX_BATCH_BYTES,
                windows=windows,
            ),
            prefetch=COMMAND_PREFETCH,
            needs_idle_check=False,
            optional=OptionalQueues(names=tenant_queues, prefetch=TENANT_PREFETCH)
            if has_tenant_queues
            else None,
        )
        queries = Consumer(
            QUERY.name,
            context.connect,
            lambda: ConcurrentWorker(query_handler.handle, context.acknowledger),
            prefetch=MAX_CONCURRENT_QUERIES,
        )
        context.health.check(INTAKE.name, lambda: commands.is_consuming)
        context.health.check(QUERY.name, lambda: queries.is_consuming)
        try:
            await run_until(
                stop,
                consuming=[commands.run(stop), queries.run(stop)],
                background=[context.run(), *consuming_credits],
            )
        finally:
            await engine.dispose()
