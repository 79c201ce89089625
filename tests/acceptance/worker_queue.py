"""The queue of a program that completes delegated runs."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import aio_pika
from aio_pika.abc import AbstractIncomingMessage
from tests.acceptance.stack import Tenant

SHORT: Final = "5s"  # the shortest heartbeat


@dataclass(kw_only=True)
class WorkerQueue:
    """A queue of the tenant, and the calls of delegated runs that arrived in it."""

    exchange: str
    calls: "asyncio.Queue[AbstractIncomingMessage]" = field(default_factory=asyncio.Queue)

    def target(self, **options: str) -> dict[str, Any]:
        """Return the field `target` of a schedule whose runs a worker completes."""
        options = {"heartbeat": SHORT, **options}
        message = {"exchange": self.exchange, "routing_key": "work", "json": {"number": 7}}
        return {"amqp": {**message, "completion": "worker", **options}}

    async def next_call(self) -> tuple[str, int, Mapping[str, Any]]:
        """Return the run id, the fencing token and the headers of the next call."""
        async with asyncio.timeout(30):
            message = await self.calls.get()
        headers = {name: str(value) for name, value in message.headers.items()}
        return headers["Harebell-Run-Id"], int(headers["Harebell-Fencing-Token"]), headers


@asynccontextmanager
async def open_queue(tenant: Tenant) -> AsyncIterator[WorkerQueue]:
    connection = await aio_pika.connect(tenant.stack.amqp_url)
    async with connection:
        channel = await connection.channel()
        queue = WorkerQueue(exchange=f"{tenant.name}.work")
        exchange = await channel.declare_exchange(queue.exchange, "direct", auto_delete=True)
        calls = await channel.declare_queue(exclusive=True)
        await calls.bind(exchange, "work")
        await calls.consume(queue.calls.put, no_ack=True)
        yield queue
