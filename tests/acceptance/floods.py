"""Floods: requests of one tenant that it publishes without a wait for their answers."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from uuid import UUID

import aio_pika
from asyncpg import Record
from tests.acceptance.stack import Tenant

from harebell.client import Client
from harebell.contract.amqp_names import tenant_exchange
from harebell.messaging.accepted_messages import CREDIT_TIMEOUT

FLOOD, VICTIM = "acme", "umbrella"
MAX_ANSWER = 1.0  # seconds until the answer to the victim, by the promise
MAX_SLOW_ANSWER = 4.0  # seconds, of single answers if the priority cannot be raised
MAX_FIRST_ANSWER = 30.0  # seconds until the first answer to a flood
MAX_WAIT_FOR_RUNS = 60.0  # seconds until the runs of the victim have succeeded
REPLY_TO = "amq.rabbitmq.reply-to"
QUERIES_AT_ONCE = 2_000  # publishes without a confirm
TARGET = {"task": {"name": "harebell.echo"}}


@dataclass(frozen=True, kw_only=True)
class Flood:
    """Requests of one kind that the flooding tenant publishes without a wait."""

    verb: str
    number: int
    body: bytes


@asynccontextmanager
async def flood_of(flood: Flood, url: str) -> AsyncIterator[Callable[[], int]]:
    """Publish the requests, and yield the number of their answers after the first one is there.

    The removal of an earlier flood loses credits, so the first answer may take `CREDIT_TIMEOUT`.
    """
    answers = 0
    answered = asyncio.Event()

    async def count(_: object) -> None:
        nonlocal answers
        answers += 1
        answered.set()

    async with await aio_pika.connect(url) as connection:
        channel = await connection.channel()
        underlay = await channel.get_underlay_channel()
        await underlay.basic_consume(REPLY_TO, count, no_ack=True)
        exchange = await channel.get_exchange(tenant_exchange(FLOOD), ensure=False)
        for start in range(0, flood.number, QUERIES_AT_ONCE):
            numbers = range(start, min(start + QUERIES_AT_ONCE, flood.number))
            publishes = (
                exchange.publish(request(flood, number), f"{FLOOD}.{flood.verb}")
                for number in numbers
            )
            await asyncio.gather(*publishes)
        await asyncio.wait_for(answered.wait(), CREDIT_TIMEOUT + MAX_FIRST_ANSWER)
        yield lambda: answers


def request(flood: Flood, number: int) -> aio_pika.Message:
    """Return one message of the flood. A repeated id would be a repeated request."""
    id_ = f"{flood.verb}-{number}"
    return aio_pika.Message(
        flood.body, user_id=FLOOD, reply_to=REPLY_TO, correlation_id=id_, message_id=id_
    )


async def request_times(
    client: Client, count: int, request_once: Callable[[Client], Awaitable[None]]
) -> list[float]:
    """Return the seconds until the answer to each of several requests, one after the other."""
    seconds = []
    for _ in range(count):
        started_at = time.monotonic()
        await request_once(client)
        seconds.append(time.monotonic() - started_at)
        await asyncio.sleep(0.2)
    return seconds


async def list_schedules(victim: Client) -> None:
    async for _ in victim.schedules():
        break


async def ended_runs(rows: Tenant, ids: Sequence[UUID]) -> list[Record]:
    """Return the first runs of schedules after all of them have succeeded."""
    async with asyncio.timeout(MAX_WAIT_FOR_RUNS):
        while True:
            found: list[Record] = await rows.ledger.fetch(
                "SELECT * FROM runs WHERE schedule_id = ANY($1) AND state = 'succeeded'", ids
            )
            if len(found) == len(ids):
                return found
            await asyncio.sleep(0.2)
