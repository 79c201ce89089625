"""From the delay tiers to the work queues, on a real broker."""

import asyncio
from datetime import timedelta

import orjson
import pytest
from tests.fakes.tickets import header
from tests.integration.dispatcher.conftest import PATIENCE, Station

from harebell.contract import amqp_names
from harebell.dispatcher import metrics as dispatcher_metrics
from harebell.dispatcher.release.queue import NO_SUCH_POOL
from harebell.messaging.ticket_messages import to_work_queues
from harebell.messaging.topology.bus import DISPATCHER
from harebell.messaging.topology.delay_queues import LONGEST_LEAD, REQUEUE_TTL_MS, delay_queue_name

pytestmark = [pytest.mark.broker, pytest.mark.postgres]

TIER_OF_A_MINUTE = delay_queue_name(57_082)


async def test_staged_tickets_come_out_as_work_before_they_are_due_each_once(
    station: Station,
) -> None:
    tickets = [
        ticket
        for number in range(100)
        for ticket in station.soon(3 + number * 0.03, tickets=5, first=number * 5)
    ]

    async with station.dispatcher():
        await station.stage(tickets)
        arrived = await station.work(len(tickets))

    assert await station.count(DISPATCHER.name) == 0  # all acknowledged: nothing came back
    assert {each.ticket.identity for each in arrived} == {each.identity for each in tickets}
    assert len(arrived) == len(tickets)
    assert all(timedelta(0) < each.early <= LONGEST_LEAD for each in arrived)


async def test_what_arrives_later_than_its_lead_goes_at_once(station: Station) -> None:
    late = dispatcher_metrics.LATE_TICKETS._value.get()  # the library has no public reading  # noqa: SLF001  # the library has no public reader

    async with station.dispatcher():
        await station.until_consuming()
        published_at = station.clock.now()
        await station.stage(station.soon(0.1, tickets=3) + station.soon(-60, tickets=2, first=3))
        arrived = await station.work(5)

    assert all(each.at - published_at < timedelta(seconds=1) for each in arrived)
    assert dispatcher_metrics.LATE_TICKETS._value.get() == late + 5  # noqa: SLF001  # the library has no public reader


async def test_what_is_due_beyond_the_hold_goes_on_through_a_shorter_tier(
    station: Station,
) -> None:
    (bundle,) = to_work_queues(station.soon(60), 20)

    async with station.dispatcher():
        await station.to_due(bundle.body)
        await station.until_count(TIER_OF_A_MINUTE, 1)

    assert await station.count(DISPATCHER.name) == 0


async def test_a_ticket_that_is_held_is_not_taken_a_second_time(station: Station) -> None:
    tickets = station.soon(2, tickets=3)
    (bundle,) = to_work_queues(tickets, 20)

    async with station.dispatcher():
        await station.to_due(bundle.body)
        await station.to_due(bundle.body)
        await station.work(3)

    assert {each.ticket.identity for each in station.arrived} == {t.identity for t in tickets}
    assert len(station.arrived) == 3
    assert await station.count(DISPATCHER.name) == 0


async def test_tickets_wait_for_a_pool_that_nobody_has_declared_yet(station: Station) -> None:
    due_at = station.clock.now()
    round_about = delay_queue_name(REQUEUE_TTL_MS)

    async with station.dispatcher():
        await station.stage([header(1, due_at, pool="mail"), header(2, due_at)])
        await station.until_count(round_about, 1)
        at_hand = [each.ticket.pool for each in await station.work(1)]
        await station.declare_pool("mail")
        arrived = await station.work(2)

    assert at_hand == ["default"]
    assert arrived[1].ticket.pool == "mail"
    assert arrived[1].at - due_at < timedelta(milliseconds=REQUEUE_TTL_MS) + timedelta(seconds=2)


async def test_an_hour_after_its_instant_a_ticket_without_a_pool_is_a_dead_letter(
    station: Station,
) -> None:
    ticket = header(1, station.clock.now() - timedelta(minutes=61), pool="mail")

    async with station.dispatcher():
        await station.stage([ticket])
        letter = await station.dead_letter()

    assert await station.count(DISPATCHER.name) == 0
    (dead,) = orjson.loads(letter.body)
    assert dead["reason"] == letter.headers[amqp_names.DEAD_REASON] == NO_SUCH_POOL
    assert letter.headers[amqp_names.DEAD_RUN] == ticket.run_id
    assert letter.type == amqp_names.message_type("message.dead")


@pytest.mark.requirement("S110")
async def test_poison_ends_in_the_dead_letters_and_stops_nothing(station: Station) -> None:
    async with station.dispatcher():
        await station.to_due(b'[{"seq": "one"}]')
        letter = await station.dead_letter()
        await station.stage(station.soon(0))
        arrived = await station.work(1)

    assert letter.headers[amqp_names.DEAD_QUEUE] == DISPATCHER.name
    assert len(arrived) == 1


async def test_an_empty_bundle_is_simply_done(station: Station) -> None:
    async with station.dispatcher():
        await station.to_due(b"[]")
        await station.stage(station.soon(0))
        await station.work(1)

    assert await station.count(DISPATCHER.name) == 0


@pytest.mark.requirement("S60")
async def test_two_dispatchers_share_the_work_and_double_nothing(station: Station) -> None:
    async with station.dispatcher("dispatcher-1"), station.dispatcher("dispatcher-2"):
        await station.until_consuming(2)
        tickets = [
            ticket
            for number in range(50)
            for ticket in station.soon(2 + number / 50, tickets=4, first=number * 4)
        ]
        await station.stage(tickets)
        arrived = await station.work(len(tickets))

    assert {each.ticket.identity for each in arrived} == {each.identity for each in tickets}
    assert len(arrived) == len(tickets)
    assert all(each.early > timedelta(0) for each in arrived)


async def test_a_stopped_dispatcher_ends_at_once_and_leaves_its_tickets_to_another(
    station: Station,
) -> None:
    async with station.process("dispatcher-1") as first:
        await station.until_consuming()
        (bundle,) = to_work_queues(station.soon(4, tickets=20), 20)
        await station.to_due(bundle.body)
        await station.until_count(DISPATCHER.name, 0)
        first.terminate()
        async with asyncio.timeout(PATIENCE):
            code = await first.wait()
        left = await station.count(DISPATCHER.name)
        async with station.dispatcher("dispatcher-2"):
            arrived = await station.work(20)

    assert code == 0
    assert left == 1
    assert len(arrived) == 20
    assert all(each.early > timedelta(0) for each in arrived)


@pytest.mark.requirement("S60", "S95")
async def test_a_killed_dispatchers_tickets_go_to_the_other(station: Station) -> None:
    async with station.process("dispatcher-1") as first:
        await station.until_consuming()
        (bundle,) = to_work_queues(station.soon(5, tickets=20), 20)
        await station.to_due(bundle.body)
        await station.until_count(DISPATCHER.name, 0)
        async with station.dispatcher("dispatcher-2"):
            await station.until_consuming(2)
            first.kill()
            arrived = await station.work(20)

    assert len(arrived) == 20
    assert all(each.early > timedelta(0) for each in arrived)
