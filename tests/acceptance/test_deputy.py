"""Harebell as a deputy: a tenant cannot make Harebell publish where the tenant itself may not.

Replies go to queues, and AMQP targets go to exchanges.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any, Final

import aio_pika
import orjson
import pytest
from aio_pika.abc import AbstractQueue
from tests.acceptance.attacker import EVENTS, Attacker
from tests.acceptance.production import Production
from tests.rig.polling import WAIT_TIMEOUT
from tests.rig.servers import Servers

pytestmark = [pytest.mark.broker, pytest.mark.postgres, pytest.mark.broker_version]

ACME, UMBRELLA = "acme", "umbrella"
ANSWERS: Final = "umbrella.answers"
ORDERS: Final = "orders"  # of another application on the broker
FAR_PUT: Final = {
    "key": "far",
    "when": {"at": "2099-01-01T00:00:00Z"},
    "target": {"http": {"url": "http://127.0.0.1:9/hook"}},
}
# Each request has a response of another service: the ticker, intake or the dlq_inspector.
REQUESTS: Final[tuple[tuple[str, dict[str, Any]], ...]] = (
    ("schedule.put", FAR_PUT),
    ("schedule.put", {"key": "invalid"}),
    ("dlq.discard", {"ids": ["5f0c1a52-7d4f-5c1b-9d80-0d3c1c3f7a11"], "note": "x"}),
    ("schedule.list", {}),
    ("dlq.list", {}),
)


@pytest.fixture(scope="module")
def production(servers: Servers, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Production]:
    root = tmp_path_factory.mktemp("deputy")
    with Production.open(servers, root, tenants=(ACME, UMBRELLA), declares=True) as production:
        production.start()
        yield production


@asynccontextmanager
async def foreign_queues(production: Production) -> AsyncIterator[list[AbstractQueue]]:
    """Yield a queue of the other tenant and a queue of another application, both without reader."""
    async with await aio_pika.connect(production.stack.amqp_url) as connection:
        channel = await connection.channel()
        names = (ANSWERS, ORDERS)
        yield [await channel.declare_queue(name, auto_delete=True) for name in names]


async def events_of(attacker: Attacker) -> "asyncio.Queue[Any]":
    """Return a queue that receives the events of the tenant of the login."""
    events: asyncio.Queue[Any] = asyncio.Queue()

    async def receive(message: aio_pika.abc.AbstractIncomingMessage) -> None:
        for event in orjson.loads(message.body):
            events.put_nowait(event)

    queue = await attacker.channel.declare_queue(f"{attacker.login}.events", exclusive=True)
    await queue.bind(EVENTS, f"{attacker.login}.schedule.rejected")
    await queue.consume(receive, no_ack=True)
    return events


@pytest.mark.requirement("P3")
@pytest.mark.parametrize("queue", [ANSWERS, ORDERS, "harebell.ticker", "amq.gen-unknown"])
async def test_no_reply_goes_to_a_queue_of_another_owner(
    queue: str, production: Production
) -> None:
    async with (
        foreign_queues(production) as foreign,
        Attacker.open(production.url(ACME), ACME) as attacker,
    ):
        events = await events_of(attacker)
        for verb, body in REQUESTS:
            message = attacker.message(body, reply_to=queue, correlation_id="chosen")
            await attacker.publish(attacker.exchange, f"{ACME}.{verb}", message)
        async with asyncio.timeout(WAIT_TIMEOUT):
            rejected = [await events.get() for _ in REQUESTS]
        received = [await each.get(no_ack=True, fail=False) for each in foreign]

    assert [each["data"]["error"]["code"] for each in rejected] == ["invalid_reply_to"] * len(
        REQUESTS
    )
    assert sorted(each["subject"] for each in rejected) == sorted(verb for verb, _ in REQUESTS)
    assert received == [None, None]


@pytest.mark.requirement("P3")
async def test_reply_goes_to_a_queue_of_the_tenant(production: Production) -> None:
    async with Attacker.open(production.url(ACME), ACME) as acme:
        for verb, body in REQUESTS:
            await acme.publish(acme.exchange, f"{ACME}.{verb}", acme.message(body))
            answer = await acme.answer()
            assert answer.get("ok", True) is (body != {"key": "invalid"})
