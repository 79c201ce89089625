"""The intake service: one ordered consumer of commands and one concurrent consumer of queries."""

import asyncio
from typing import Final

from harebell.bootstrap.process import run_until
from harebell.bootstrap.service_context import open_service
from harebell.intake.commands.definition import TargetPolicy
from harebell.intake.commands.handler import CommandHandler
from harebell.intake.commands.rules import IntakePolicy
from harebell.intake.queries.handler import QueryHandler
from harebell.intake.queries.store import IntakeStore
from harebell.messaging.consumer import ConcurrentWorker, Consumer, OrderedWorker
from harebell.messaging.rejection_events import RejectionEvents
from harebell.messaging.sender_check import SenderCheck
from harebell.messaging.topology.bus import INTAKE, QUERY
from harebell.runtime.settings import IntakeSettings
from harebell.storage.engine import open_engine

MAX_BATCH: Final = 100  # messages that intake checks and then publishes together
COMMAND_PREFETCH: Final = 2 * MAX_BATCH  # the next batch is in memory when a batch is done
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
        command_handler = CommandHandler(
            publisher=context.publisher,
            clock=context.clock,
            policy=policy,
            sender_check=sender_check,
            rejection_events=rejection_events,
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
            lambda: OrderedWorker(
                command_handler.handle, context.acknowledger, limit=MAX_BATCH, gather_time=0
            ),
            prefetch=COMMAND_PREFETCH,
            needs_idle_check=False,
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
                background=[context.run()],
            )
        finally:
            await engine.dispose()
