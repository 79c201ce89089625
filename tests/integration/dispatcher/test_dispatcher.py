"""Tests of dispatchers on a real broker, from the delay queues to the work queues."""

import asyncio
from datetime import timedelta

import orjson
import pytest
from tests.fakes.tickets import header
from tests.integration.dispatcher.conftest import TIMEOUT, DispatcherRig

from harebell.contract import amqp_names
from harebell.dispatcher import metrics as dispatcher_metrics
from harebell.dispatcher.release.queue import NO_SUCH_POOL
from harebell.messaging.ticket_messages import to_work_queues
from harebell.messaging.topology.bus import DISPATCHER
from harebell.messaging.topology.delay_queues import LONGEST_LEAD, REQUEUE_TTL_MS, delay_queue_name

pytestmark = [pytest.mark.broker, pytest.mark.postgres]

DUE_IN = 160  # seconds
# A ticket goes to this queue while it is due within 137 s to 160 s.
DELAY_QUEUE = delay_queue_name(135_765)


@pytest.mark.measures
async def test_each_staged_ticket_reaches_a_work_queue_once_before_its_due_time(
    rig: DispatcherRig,
) -> None:
    async with rig.dispatcher():
        await rig.until_consuming()
        tickets = [
            ticket
            for number in range(100)
            for ticket in rig.tickets_due_in(3 + number * 0.03, tickets=5, first=number * 5)
        ]
        await rig.stage(tickets)
        received = await rig.receive(len(tickets))

    assert await rig.count(DISPATCHER.name) == 0  # all deliveries are acknowledged
    assert {each.ticket.identity for each in received} == {each.identity for each in tickets}
    assert len(received) == len(tickets)
    assert all(timedelta(0) < each.lead <= LONGEST_LEAD for each in received)


async def test_ticket_is_released_at_once_when_it_arrives_after_its_lead(
    rig: DispatcherRig,
) -> None:
    late = dispatcher_metrics.LATE_TICKETS._value.get()  # noqa: SLF001  # the library has no public reader

    async with rig.dispatcher():
        await rig.until_consuming()
        published_at = rig.clock.now()
        await rig.stage(
            rig.tickets_due_in(0.1, tickets=3) + rig.tickets_due_in(-60, tickets=2, first=3)
        )
        received = await rig.receive(5)

    assert all(each.at - published_at < timedelta(seconds=1) for each in received)
    assert dispatcher_metrics.LATE_TICKETS._value.get() == late + 5  # noqa: SLF001  # the library has no public reader


async def test_ticket_above_the_longest_wait_goes_to_a_shorter_delay_queue(
    rig: DispatcherRig,
) -> None:
    (batch,) = to_work_queues(rig.tickets_due_in(DUE_IN), 20)

    async with rig.dispatcher():
        await rig.publish_due(batch.body)
        await rig.until_count(DELAY_QUEUE, 1)

    assert await rig.count(DISPATCHER.name) == 0


async def test_repeated_ticket_is_queued_once(rig: DispatcherRig) -> None:
    tickets = rig.tickets_due_in(2, tickets=3)
    (batch,) = to_work_queues(tickets, 20)

    async with rig.dispatcher():
        await rig.publish_due(batch.body)
        await rig.publish_due(batch.body)
        await rig.receive(3)

    assert {each.ticket.identity for each in rig.received} == {t.identity for t in tickets}
    assert len(rig.received) == 3
    assert await rig.count(DISPATCHER.name) == 0


async def test_ticket_waits_in_a_delay_queue_until_its_pool_is_declared(rig: DispatcherRig) -> None:
    due_at = rig.clock.now()
    requeue = delay_queue_name(REQUEUE_TTL_MS)

    async with rig.dispatcher():
        await rig.stage([header(1, due_at, pool="mail"), header(2, due_at)])
        await rig.until_count(requeue, 1)
        pools = [each.ticket.pool for each in await rig.receive(1)]
        await rig.declare_pool("mail")
        received = await rig.receive(2)

    assert pools == ["default"]
    assert received[1].ticket.pool == "mail"
    assert received[1].at - due_at < timedelta(milliseconds=REQUEUE_TTL_MS) + timedelta(seconds=2)


async def test_ticket_without_a_pool_becomes_a_dead_letter_one_hour_after_its_due_time(
    rig: DispatcherRig,
) -> None:
    ticket = header(1, rig.clock.now() - timedelta(minutes=61), pool="mail")

    async with rig.dispatcher():
        await rig.stage([ticket])
        dead_letter = await rig.dead_letter()

    assert await rig.count(DISPATCHER.name) == 0
    (dead,) = orjson.loads(dead_letter.body)
    assert dead["reason"] == dead_letter.headers[amqp_names.DEAD_REASON] == NO_SUCH_POOL
    assert dead_letter.headers[amqp_names.DEAD_RUN] == ticket.run_id
    assert dead_letter.type == amqp_names.message_type("message.dead")


@pytest.mark.requirement("S110")
async def test_invalid_batch_becomes_a_dead_letter_and_stops_no_other_batch(
    rig: DispatcherRig,
) -> None:
    async with rig.dispatcher():
        await rig.publish_due(b'[{"seq": "one"}]')
        dead_letter = await rig.dead_letter()
        await rig.stage(rig.tickets_due_in(0))
        received = await rig.receive(1)

    assert dead_letter.headers[amqp_names.DEAD_QUEUE] == DISPATCHER.name
    assert len(received) == 1


async def test_empty_batch_is_acknowledged(rig: DispatcherRig) -> None:
    async with rig.dispatcher():
        await rig.publish_due(b"[]")
        await rig.stage(rig.tickets_due_in(0))
        await rig.receive(1)

    assert await rig.count(DISPATCHER.name) == 0


@pytest.mark.requirement("S60")
async def test_two_dispatchers_release_each_ticket_once(rig: DispatcherRig) -> None:
    async with rig.dispatcher("dispatcher-1"), rig.dispatcher("dispatcher-2"):
        await rig.until_consuming(2)
        tickets = [
            ticket
            for number in range(50)
            for ticket in rig.tickets_due_in(2 + number / 50, tickets=4, first=number * 4)
        ]
        await rig.stage(tickets)
        received = await rig.receive(len(tickets))

    assert {each.ticket.identity for each in received} == {each.identity for each in tickets}
    assert len(received) == len(tickets)
    assert all(each.lead > timedelta(0) for each in received)


@pytest.mark.long
async def test_stopped_dispatcher_leaves_its_tickets_to_another(
    rig: DispatcherRig,
) -> None:
    async with rig.process("dispatcher-1") as first:
        await rig.until_consuming()
        (batch,) = to_work_queues(rig.tickets_due_in(4, tickets=20), 20)
        await rig.publish_due(batch.body)
        await rig.until_count(DISPATCHER.name, 0)
        first.terminate()
        async with asyncio.timeout(TIMEOUT):
            code = await first.wait()
        remaining = await rig.count(DISPATCHER.name)
        async with rig.dispatcher("dispatcher-2"):
            received = await rig.receive(20)

    assert code == 0
    assert remaining == 1
    assert len(received) == 20
    assert all(each.lead > timedelta(0) for each in received)


@pytest.mark.requirement("S60", "S95")
async def test_killed_dispatcher_leaves_its_tickets_to_another(rig: DispatcherRig) -> None:
    async with rig.process("dispatcher-1") as first:
        await rig.until_consuming()
        (batch,) = to_work_queues(rig.tickets_due_in(5, tickets=20), 20)
        await rig.publish_due(batch.body)
        await rig.until_count(DISPATCHER.name, 0)
        async with rig.dispatcher("dispatcher-2"):
            await rig.until_consuming(2)
            first.kill()
            received = await rig.receive(20)

    assert len(received) == 20
    assert all(each.lead > timedelta(0) for each in received)
