"""Tests of breakers on a real broker: outcomes in, deferred tickets and transitions out."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Any

import orjson
import pytest
from tests.fakes.tickets import ticket
from tests.integration.dispatcher.conftest import TIMEOUT, DispatcherRig, until_equal
from tests.rig.polling import POLL_INTERVAL

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

ECHO = "task:harebell.echo"  # the downstream of the tickets in tests


def healthy_ticket(number: int, due_at: datetime) -> TicketHeader:
    """A ticket of a downstream without failures."""
    echo = ticket(number, due_at)
    target = TaskTarget(task=TaskCall(name="acme.report"))
    run_spec = echo.run_spec.model_copy(update={"target": target})
    return TicketHeader.of(echo.model_copy(update={"run_spec": run_spec}))


def outcome(number: int, at: datetime, *, healthy: bool) -> dict[str, Any]:
    run = ticket(number, at)
    data = RunEventData(
        run_id=run.run_id,
        schedule_id=run.schedule_id,
        scheduled_for=at,
        attempt=1,
        state="retrying",
        downstream=ECHO,
        healthy=healthy,
    )
    return make_event("default", "run.retrying", data, id_=str(number), subject=run.run_id, at=at)


async def publish_failures(rig: DispatcherRig, count: int) -> None:
    at = rig.clock.now()
    body = orjson.dumps([outcome(number, at, healthy=False) for number in range(count)])
    await publish(rig, amqp_names.EVENTS, "default.run.retrying", body, "run.retrying")


async def publish_snapshot(rig: DispatcherRig, **fields: Any) -> None:
    """Publish a breaker snapshot, as a ticker does. Without fields, the snapshot is empty."""
    breakers = [BreakerSnapshotEntry(downstream=ECHO, **fields)] if fields else []
    snapshot = BreakerSnapshot(as_of=rig.clock.now(), breakers=breakers)
    await publish(
        rig, amqp_names.CONTROL, BREAKER_SNAPSHOT_KEY, encode(snapshot), "breaker.snapshot"
    )


async def publish(rig: DispatcherRig, exchange: str, key: str, body: bytes, kind: str) -> None:
    await rig.publisher.publish(
        OutgoingMessage(
            exchange=exchange,
            routing_key=key,
            body=body,
            type=amqp_names.message_type(kind),
            message_id=f"{kind}/{rig.clock.now()}",
        )
    )


async def deferred_batches(rig: DispatcherRig) -> int:
    """Return the number of messages in the delay queues of deferrals."""
    counts = [await rig.count(delay_queue_name(ms)) for ms in DELAY_TTLS_MS if ms <= 30_000]
    return sum(counts)


async def until_snapshot_requested(rig: DispatcherRig) -> None:
    """Wait until a dispatcher has requested a snapshot, which shows that it consumes events."""
    await until_true(lambda: rig.count(BREAKERS.name))


async def until_true(condition: Callable[[], Awaitable[int]]) -> None:
    async with asyncio.timeout(TIMEOUT):
        while not await condition():  # noqa: ASYNC110  # the broker sends no notification
            await asyncio.sleep(POLL_INTERVAL)


@pytest.mark.requirement("S113")
async def test_dispatcher_defers_the_tickets_of_a_failing_downstream_and_releases_others(
    rig: DispatcherRig,
) -> None:
    async with rig.dispatcher():
        await until_snapshot_requested(rig)
        before = await rig.count(BREAKERS.name)
        await publish_failures(rig, 20)
        await until_true(lambda: new_messages(rig, before))
        now = rig.clock.now()
        await rig.stage([*rig.tickets_due_in(0, tickets=3), healthy_ticket(7, now)])
        received = await rig.receive(1)
        await until_equal(lambda: deferred_batches(rig), 1)  # one message of three tickets

    assert [each.ticket.downstream for each in received] == ["task:acme.report"]


async def new_messages(rig: DispatcherRig, before: int) -> int:
    """Return the number of new messages for the ticker that records breakers."""
    return max(0, await rig.count(BREAKERS.name) - before)


@pytest.mark.requirement("S113")
async def test_dispatcher_ignores_invalid_events_and_counts_the_others(rig: DispatcherRig) -> None:
    async with rig.dispatcher():
        await until_snapshot_requested(rig)
        before = await rig.count(BREAKERS.name)
        for body in (b"{", b"7", b"[1]", orjson.dumps([{"data": None}])):
            await publish(rig, amqp_names.EVENTS, "default.run.retrying", body, "run.retrying")
        await publish_failures(rig, 20)
        await until_true(lambda: new_messages(rig, before))


@pytest.mark.requirement("S113")
async def test_starting_dispatcher_consumes_tickets_only_after_a_snapshot(
    rig: DispatcherRig,
) -> None:
    await rig.stage(rig.tickets_due_in(0, tickets=2))

    async with rig.dispatcher(startup_timeout="60s"):
        await until_snapshot_requested(rig)
        consumers = await rig.consumers()
        await publish_snapshot(rig, forced="open")
        await until_equal(lambda: deferred_batches(rig), 1)

    assert consumers == 0
    assert rig.received == []


@pytest.mark.requirement("S113")
async def test_deferred_ticket_is_released_when_the_breaker_is_no_longer_forced_open(
    rig: DispatcherRig,
) -> None:
    async with rig.dispatcher(startup_timeout="60s"):
        await until_snapshot_requested(rig)
        await publish_snapshot(rig, forced="open", forced_until=rig.tickets_due_in(2)[0].due_at)
        await rig.until_consuming()
        await rig.stage(rig.tickets_due_in(0, tickets=2))
        await until_equal(lambda: deferred_batches(rig), 1)
        await publish_snapshot(rig)
        received = await rig.receive(2)

    assert len(received) == 2
