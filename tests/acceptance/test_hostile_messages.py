"""No message stops a service, and none delays the message of another tenant."""

import random
import time
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import aio_pika
import orjson
import pytest
from aio_pika.abc import AbstractIncomingMessage
from tests.acceptance.hostile_messages import damaged, is_acceptable, properties
from tests.acceptance.recording_target import Target
from tests.acceptance.stack import Stack, Tenant
from tests.rig.amqp_wire import RefusedByBrokerError, Wire
from tests.rig.polling import until

from harebell.contract.amqp_names import CHANGES, DEAD, DUE, EVENTS, WORK
from harebell.messaging.declare import declare
from harebell.messaging.topology.bus import delayed_topology
from harebell.messaging.topology.declarations import ExchangeKind
from harebell.messaging.topology.delay_queues import DELAY_TTLS_MS, delay_queue_name

pytestmark = [
    pytest.mark.broker,
    pytest.mark.postgres,
    pytest.mark.measures,
    pytest.mark.broker_version,
]

SEED: Final = 20_261_127
SHORT: Final = 10  # seconds of the flood in `make test`
ANSWER_WITHIN: Final = 1.0  # seconds
QUIET_WITHIN: Final = 60.0  # seconds until each queue is empty
# A hostile header may ask for a delay of 65.5 s, and a route without a queue adds 17 s of retries.
DELAYED_WITHIN: Final = 90.0  # seconds until the delay queues are empty too
DELAY_QUEUES: Final = frozenset(map(delay_queue_name, DELAY_TTLS_MS))
COMMAND: Final = {"when": {"at": "2049-01-01T00:00:00Z"}, "target": {"amqp": {"exchange": "x"}}}
HOSTILE_TENANT: Final = "hostile"
DELAYED_EXCHANGE: Final = "late"
# The queues of messages between services, by the exchange of the messages.
INTERNAL_QUEUES: Final = {
    CHANGES: "harebell.ticker",
    DUE: "harebell.dispatcher",
    WORK: "harebell.work.default.normal",
    EVENTS: "harebell.ticker.outcomes",
    DEAD: "harebell.dead",
}


@dataclass(frozen=True, kw_only=True)
class Destination:
    """A place for hostile messages. `body` returns a valid body for a number."""

    exchange: str
    routing_key: str
    body: Callable[[int], bytes]
    type: str | None = None
    is_command: bool = False


def command_body(number: int) -> bytes:
    return orjson.dumps({"key": f"key-{number}", **COMMAND})


PUBLIC: Final = (
    Destination(
        exchange="harebell.commands",
        routing_key=f"{HOSTILE_TENANT}.schedule.put",
        body=command_body,
        is_command=True,
    ),
    Destination(
        exchange="harebell.queries",
        routing_key=f"{HOSTILE_TENANT}.schedule.list",
        body=lambda _: b"{}",
    ),
    Destination(
        exchange="harebell.queries", routing_key=f"{HOSTILE_TENANT}.dlq.list", body=lambda _: b"{}"
    ),
    Destination(exchange=DELAYED_EXCHANGE, routing_key="any", body=lambda _: b"hello"),
)


@asynccontextmanager
async def internal_messages(stack: Stack) -> AsyncIterator[dict[str, AbstractIncomingMessage]]:
    """Yield the last message of each exchange between the services."""
    last: dict[str, AbstractIncomingMessage] = {}

    async def keep(message: AbstractIncomingMessage) -> None:
        last[str(message.exchange)] = message

    async with await aio_pika.connect(stack.amqp_url) as connection:
        channel = await connection.channel()
        queue = await channel.declare_queue(exclusive=True)
        for exchange in INTERNAL_QUEUES:
            key = "schedule" if exchange == CHANGES else "#"
            await queue.bind(exchange, key)
        await queue.consume(keep, no_ack=True)
        yield last


async def destinations(stack: Stack, healthy: Tenant, target: Target) -> list[Destination]:
    """Return the public ones, and the queues of the services with messages as they are in use."""
    async with internal_messages(stack) as last:
        await healthy.put(
            "dies",
            {"now": True},
            target.http("dies", fail=1, status=400),
            retry={"max_attempts": 1},
        )
        await until(lambda: _all(last), what=f"messages of {set(INTERNAL_QUEUES)}")
    return [*PUBLIC, *(_internal(exchange, message) for exchange, message in last.items())]


def _internal(exchange: str, message: AbstractIncomingMessage) -> Destination:
    return Destination(
        exchange="",
        routing_key=INTERNAL_QUEUES[exchange],
        body=lambda _: message.body,
        type=message.type,
    )


async def _all(last: dict[str, AbstractIncomingMessage]) -> bool:
    return last.keys() == INTERNAL_QUEUES.keys()


@pytest.mark.parametrize(
    "seconds",
    [
        SHORT,
        pytest.param(600, marks=[pytest.mark.long, pytest.mark.timeout(800)]),
    ],
)
async def test_hostile_message_stops_no_service_and_delays_no_other_tenant(
    own_stack: Stack, target: Target, seconds: int
) -> None:
    async with await aio_pika.connect(own_stack.amqp_url) as connection:
        await declare(connection, delayed_topology({DELAYED_EXCHANGE: ExchangeKind.TOPIC}))
    own_stack.start(HAREBELL_DELAYED_EXCHANGES=f"{DELAYED_EXCHANGE}={HOSTILE_TENANT}")
    dice = random.Random(SEED)  # noqa: S311  # reproducible, not secret
    accepted: dict[str, bytes] = {}  # the properties by key
    async with own_stack.tenant("healthy") as healthy, AsyncExitStack() as opened:
        places = await destinations(own_stack, healthy, target)
        wire = await opened.enter_async_context(Wire.open(own_stack.amqp_url))
        slowest, number, refused = 0.0, 0, 0
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            number += 1
            place = places[number % len(places)]
            is_whole = dice.random() < 0.75
            body = place.body(number)
            content = body if is_whole else damaged(dice, body)
            list_ = properties(dice, place.type)
            try:
                await wire.publish(place.exchange, place.routing_key.encode(), list_, content)
            except RefusedByBrokerError:
                refused += 1
                wire = await opened.enter_async_context(Wire.open(own_stack.amqp_url))
            else:
                if place.is_command and is_whole and is_acceptable(list_):
                    accepted[f"key-{number}"] = list_
            began = time.monotonic()
            await _healthy_request(healthy, number)
            slowest = max(slowest, time.monotonic() - began)
            assert slowest < ANSWER_WITHIN, (number, place.routing_key, list_[:200], content[:200])
        if seconds == SHORT:
            are_consumed = partial(_are_consumed, own_stack)
            await until(are_consumed, within=QUIET_WITHIN, what="consumed queues")
        else:
            empty = partial(_are_empty, own_stack)
            await until(lambda: empty(without=DELAY_QUEUES), within=QUIET_WITHIN, what="no message")
            await until(empty, within=DELAYED_WITHIN, what="empty delay queues")
        await healthy.put("at the end", {"now": True}, target.http("succeeds"))
        await healthy.until_runs(1, "succeeded")
        async with own_stack.tenant(HOSTILE_TENANT) as hostile:
            keys = {each.key async for each in hostile.harebell.schedules()}

    assert number - refused > 5 * seconds
    assert not {key: list_ for key, list_ in accepted.items() if key not in keys}
    logs = "".join(text for _, text in own_stack.log_tails(1_000_000))
    assert "consumer lost" not in logs
    assert "handler failed" not in logs


async def _healthy_request(healthy: Tenant, number: int) -> None:
    """Send one of the requests that the services answer, in turn."""
    match number % 3:
        case 0:
            await healthy.put("key", {"at": "2049-01-01T00:00:00Z"}, {"amqp": {"exchange": "x"}})
        case 1:
            assert [each.key async for each in healthy.harebell.schedules(limit=1)]
        case _:
            assert [each.kind async for each in healthy.harebell.dead_letters(limit=1)]


async def _are_consumed(stack: Stack) -> bool:
    """Return whether no message waits for a service, without the statistics, which are 5 s old."""
    async with await aio_pika.connect(stack.amqp_url) as connection:
        channel = await connection.channel()
        for each in _queues(stack, without=DELAY_QUEUES):
            if not each["exclusive"]:  # another connection may not see it
                queue = await channel.declare_queue(each["name"], passive=True)
                if queue.declaration_result.message_count:
                    return False
    return True


async def _are_empty(stack: Stack, *, without: Collection[str] = ()) -> bool:
    """Return whether the services have acknowledged every message."""
    return not any(each.get("messages", 0) for each in _queues(stack, without=without))


def _queues(stack: Stack, *, without: Collection[str]) -> list[dict[str, Any]]:
    """Return the queues whose messages are consumed."""
    host = stack.amqp_url.rpartition("/")[2]
    return [
        each
        for each in stack.servers.management("GET", f"queues/{host}")
        if each["name"] not in without and not each["name"].endswith((".recent", ".alerts"))
    ]
