"""The shell of the door: commands become changes, queries become answers."""

import asyncio
from typing import Final

import structlog

from harebell.bootstrap.process import run_until
from harebell.bootstrap.service_context import open_service
from harebell.intake.commands.check import (
    IncomingRequest,
)
from harebell.intake.commands.definition import TargetPolicy
from harebell.intake.commands.handler import CommandHandler
from harebell.intake.commands.rules import IntakePolicy
from harebell.intake.queries.handler import QueryHandler
from harebell.intake.queries.store import IntakeStore
from harebell.messaging.acknowledge import Delivery
from harebell.messaging.consumer import ConcurrentWorker, Consumer, OrderedWorker
from harebell.messaging.replies import can_reply_to
from harebell.messaging.topology.bus import INTAKE, QUERY
from harebell.runtime.settings import IntakeSettings
from harebell.storage.engine import open_engine

BATCH: Final = 100  # messages checked, then published together
PREFETCH: Final = 2 * BATCH  # the next batch is at hand when one is done
QUERIES_AT_ONCE: Final = 20

log = structlog.get_logger()


async def serve(settings: IntakeSettings, stop: asyncio.Event) -> None:
    engine = open_engine(
        settings.database_url.get_secret_value(),
        name=settings.instance_id,
        bounds=settings.pool_bounds,
    )
    async with open_service(settings, "intake", stop) as parts:
        may_call = TargetPolicy(settings.allowed_networks, settings.known_tasks)
        rules = IntakePolicy(may_call, settings.default_when)
        door = CommandHandler(parts.publisher, parts.clock, rules)
        desk = QueryHandler(parts.publisher, parts.clock, IntakeStore(engine), may_call)
        commands = Consumer(
            INTAKE.name,
            parts.connect,
            lambda: OrderedWorker(door.handle, parts.acknowledger, limit=BATCH, gather_time=0),
            prefetch=PREFETCH,
            needs_idle_check=False,
        )
        queries = Consumer(
            QUERY.name,
            parts.connect,
            lambda: ConcurrentWorker(desk.handle, parts.acknowledger),
            prefetch=QUERIES_AT_ONCE,
        )
        parts.health.check("commands", lambda: commands.is_consuming)
        parts.health.check("queries", lambda: queries.is_consuming)
        try:
            await run_until(
                stop,
                consuming=[commands.run(stop), queries.run(stop)],
                background=[parts.run()],
            )
        finally:
            await engine.dispose()


def _submission(delivery: Delivery) -> IncomingRequest:
    message = delivery.message
    return IncomingRequest(
        routing_key=delivery.routing_key,
        body=delivery.body,
        message_id=delivery.message_id,
        reply_to=message.reply_to if can_reply_to(message.reply_to) else None,
        correlation_id=message.correlation_id,
        user_id=message.user_id,
        type=message.type,
    )
