"""Breakers on a real broker: what a dispatcher hears, holds back, and tells."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Any

import orjson
import pytest
from tests.fakes.tickets import ticket
from tests.integration.dispatcher.conftest import PATIENCE, Station, until

from harebell.contract import amqp_names
from harebell.contract.breakers import BreakerSnapshot, BreakerSnapshotEntry
from harebell.contract.events import RunEventData, make_event
from harebell.contract.json_codec import encode
from harebell.contract.target import TaskCall, TaskTarget
from harebell.messaging.publisher import OutgoingMessage
from harebell.messaging.ticket_batches import TicketHeader
from harebell.messaging.topology.bus import BREAKER_SNAPSHOT_KEY, BREAKERS
from harebell.messaging.topology.delay_queues import DELAY_TTLS_MS, delay_queue_name

pytestmark = [pytest.mark.broker, pytest.mark.postgres]

ECHO = "task:harebell.echo"  # whom the tickets of tests call


def elsewhere(number: int, due_at: datetime) -> TicketHeader:
    """A ticket of a target that is well."""
    made = ticket(number, due_at)
    target = TaskTarget(task=TaskCall(name="acme.report"))
    return TicketHeader.of(
        made.model_copy(update={"run_spec": made.run_spec.model_copy(update={"target": target})})
    )


def outcome(number: int, at: datetime, *, healthy: bool) -> dict[str, Any]:
    made = ticket(number, at)
    fact = RunEventData(
        run_id=made.run_id,
        schedule_id=made.schedule_id,
        scheduled_for=at,
        attempt=1,
        state="retrying",
        downstream=ECHO,
        healthy=healthy,
    )
    return make_event("acme", "run.retrying", fact, id_=str(number), subject=made.run_id, at=at)


async def tell_of_failures(station: Station, count: int) -> None:
    at = station.clock.now()
    body = orjson.dumps([outcome(number, at, healthy=False) for number in range(count)])
    await publish(station, amqp_names.EVENTS, "acme.run.retrying", body, "run.retrying")


async def say(station: Station, **fields: Any) -> None:
    """As a ticker does."""
    breakers = [BreakerSnapshotEntry(downstream=ECHO, **fields)] if fields else []
    word = BreakerSnapshot(as_of=station.clock.now(), breakers=breakers)
    await publish(
        station, amqp_names.CONTROL, BREAKER_SNAPSHOT_KEY, encode(word), "breaker.snapshot"
    )


async def publish(station: Station, exchange: str, key: str, body: bytes, kind: str) -> None:
    await station.publisher.publish(
        OutgoingMessage(
            exchange=exchange,
            routing_key=key,
            body=body,
            type=amqp_names.message_type(kind),
            message_id=f"{kind}/{station.clock.now()}",
        )
    )


async def circling(station: Station) -> int:
    counts = [await station.count(delay_queue_name(ms)) for ms in DELAY_TTLS_MS if ms <= 30_000]
    return sum(counts)


async def asked(station: Station) -> None:
    """Until a dispatcher has begun to listen, and so has asked how breakers stand."""
    await until_true(lambda: station.count(BREAKERS.name))


async def until_true(look: Callable[[], Awaitable[int]]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not await look():  # noqa: ASYNC110  # a broker tells only when it is asked
            await asyncio.sleep(0.05)


@pytest.mark.requirement("S113")
async def test_after_enough_failures_runs_to_that_target_go_round_and_others_leave(
    station: Station,
) -> None:
    async with station.dispatcher():
        await asked(station)
        before = await station.count(BREAKERS.name)
        await tell_of_failures(station, 20)
        await until_true(lambda: told_of(station, before))
        now = station.clock.now()
        await station.stage([*station.soon(0, tickets=3), elsewhere(7, now)])
        arrived = await station.work(1)
        await until(lambda: circling(station), 1)  # one message of three tickets

    assert [each.ticket.downstream for each in arrived] == ["task:acme.report"]


async def told_of(station: Station, before: int) -> int:
    """Whether a transition has been told, to those who keep them."""
    return max(0, await station.count(BREAKERS.name) - before)


@pytest.mark.requirement("S113")
async def test_what_cannot_be_read_is_let_go_and_the_rest_is_heard(station: Station) -> None:
    async with station.dispatcher():
        await asked(station)
        before = await station.count(BREAKERS.name)
        for body in (b"{", b"7", b"[1]", orjson.dumps([{"data": None}])):
            await publish(station, amqp_names.EVENTS, "acme.run.retrying", body, "run.retrying")
        await tell_of_failures(station, 20)
        await until_true(lambda: told_of(station, before))


@pytest.mark.requirement("S113")
async def test_a_dispatcher_that_starts_waits_to_hear_what_is_forced_open(
    station: Station,
) -> None:
    await station.stage(station.soon(0, tickets=2))

    async with station.dispatcher(patience="60s"):
        await asked(station)
        held_up = await station.consumers()
        await say(station, forced="open")
        await until(lambda: circling(station), 1)

    assert held_up == 0
    assert station.arrived == []


@pytest.mark.requirement("S113")
async def test_what_is_forced_open_no_more_leaves_when_it_comes_round(
    station: Station,
) -> None:
    async with station.dispatcher(patience="60s"):
        await asked(station)
        await say(station, forced="open", forced_until=station.soon(2)[0].due_at)
        await station.until_consuming()
        await station.stage(station.soon(0, tickets=2))
        await until(lambda: circling(station), 1)
        await say(station)
        arrived = await station.work(2)

    assert len(arrived) == 2
