"""A consumer reconnects after each loss, loses no message and keeps the order."""

import asyncio
from collections.abc import AsyncIterator, Sequence

import aio_pika
import pytest
from tests.integration.messaging.inbox import QUEUE, Inbox, open_inbox
from tests.rig.tcp_proxy import AmqpProxy

from harebell.connection.amqp import login_of
from harebell.messaging import metrics
from harebell.messaging.acknowledge import DONE, Delivery, Outcome
from harebell.messaging.consumer import ConcurrentWorker, OrderedWorker

pytestmark = [pytest.mark.broker, pytest.mark.broker_version]

MANY = [f"{number:03}" for number in range(60)]


@pytest.fixture
async def inbox(amqp_url: str) -> AsyncIterator[Inbox]:
    async with open_inbox(amqp_url) as opened:
        yield opened


class Recorder:
    """A handler that records the bodies and waits at the body `halt_at`."""

    def __init__(self, inbox: Inbox, *, halt_at: str | None = None) -> None:
        self.inbox = inbox
        self.halt_at = halt_at
        self.seen: list[str] = []
        self.batches: list[int] = []
        self.resume = asyncio.Event()

    async def many(self, deliveries: Sequence[Delivery]) -> Sequence[Outcome]:
        self.batches.append(len(deliveries))
        for delivery in deliveries:
            await self._see(delivery.body.decode())
        return [DONE] * len(deliveries)

    async def one(self, delivery: Delivery) -> Outcome:
        await self._see(delivery.body.decode())
        return DONE

    async def _see(self, body: str) -> None:
        self.seen.append(body)
        self.inbox.changed.set()
        if body == self.halt_at:
            await self.resume.wait()

    @property
    def firsts(self) -> list[str]:
        return list(dict.fromkeys(self.seen))


async def test_consumer_reconnects_and_keeps_the_order_when_its_connection_is_lost(
    inbox: Inbox,
) -> None:
    recorder = Recorder(inbox, halt_at="020")
    await inbox.put(*MANY)

    async with inbox.consumed_by(
        lambda acknowledger: OrderedWorker(recorder.many, acknowledger, limit=7, gather_time=0)
    ):
        await inbox.until(lambda: "020" in recorder.seen)
        inbox.proxy.cut()
        await inbox.until(lambda: recorder.seen.count("020") == 2)
        recorder.resume.set()
        await inbox.until(lambda: recorder.seen[-1] == MANY[-1])

    assert inbox.sessions == 2
    assert recorder.firsts == MANY
    again = recorder.seen[recorder.seen.index("020") + 1 :]
    assert again == sorted(again)
    assert await inbox.ready() == 0


async def test_unacknowledged_messages_are_delivered_again_when_the_connection_is_lost(
    inbox: Inbox,
) -> None:
    recorder = Recorder(inbox, halt_at="001")
    await inbox.put(*MANY[:3])

    async with inbox.consumed_by(lambda acknowledger: ConcurrentWorker(recorder.one, acknowledger)):
        await inbox.until(lambda: len(recorder.seen) == 3)
        inbox.proxy.cut()
        await inbox.until(lambda: recorder.seen.count("001") == 2)
        recorder.resume.set()

    assert set(recorder.seen) == set(MANY[:3])
    assert await inbox.ready() == 0


async def test_batch_contains_the_available_deliveries_up_to_its_limit(inbox: Inbox) -> None:
    recorder = Recorder(inbox)
    await inbox.put(*MANY)

    async with inbox.consumed_by(
        lambda acknowledger: OrderedWorker(recorder.many, acknowledger, limit=25, gather_time=0.2)
    ):
        await inbox.until(lambda: len(recorder.seen) == len(MANY))

    assert recorder.seen == MANY
    assert max(recorder.batches) == 25


async def test_consumer_receives_at_most_the_prefetch(inbox: Inbox) -> None:
    recorder = Recorder(inbox, halt_at="000")
    await inbox.put(*MANY[:10])

    async with inbox.consumed_by(
        lambda acknowledger: OrderedWorker(recorder.many, acknowledger, limit=100, gather_time=0),
        prefetch=4,
    ):
        await inbox.until(lambda: recorder.seen == ["000"])
        left = await inbox.ready()
        recorder.resume.set()
        await inbox.until(lambda: len(recorder.seen) == 10)

    assert left == 6


@pytest.mark.requirement("S73")
async def test_stop_finishes_the_delivered_messages_and_leaves_the_others(inbox: Inbox) -> None:
    recorder = Recorder(inbox, halt_at="000")
    await inbox.put(*MANY[:10])

    async with inbox.consumed_by(
        lambda acknowledger: OrderedWorker(recorder.many, acknowledger, limit=100, gather_time=0),
        prefetch=4,
    ):
        await inbox.until(lambda: recorder.seen == ["000"])
        asyncio.get_running_loop().call_later(0.1, recorder.resume.set)

    assert recorder.seen[:4] == MANY[:4]
    assert await inbox.ready() == 10 - len(recorder.seen)


async def test_consumer_opens_a_new_session_when_its_queue_is_deleted(
    inbox: Inbox,
) -> None:
    recorder = Recorder(inbox)

    async with inbox.consumed_by(
        lambda acknowledger: OrderedWorker(recorder.many, acknowledger, limit=9, gather_time=0)
    ) as consumer:
        await inbox.put("a")
        await inbox.until(lambda: recorder.seen == ["a"])
        await inbox.channel.queue_delete(QUEUE)
        await inbox.until(lambda: inbox.sessions > 1)
        await inbox.declare()
        await inbox.put("b")
        await inbox.until(lambda: recorder.seen == ["a", "b"])
        is_consuming = consumer.is_consuming

    assert is_consuming
    assert not consumer.is_consuming
    assert inbox.sessions > 1


@pytest.mark.long
async def test_idle_consumer_opens_a_new_session_when_the_broker_delivers_no_ready_message(
    amqp_url: str,
) -> None:
    """The broker counts two dropped deliveries, so the prefetch permits no third delivery."""
    async with open_inbox(amqp_url, AmqpProxy) as inbox:
        proxy = inbox.proxy
        assert isinstance(proxy, AmqpProxy)
        proxy.drops_deliveries = True
        recorder = Recorder(inbox)
        await inbox.put(*MANY[:3])

        async with inbox.consumed_by(
            lambda acknowledger: ConcurrentWorker(recorder.one, acknowledger), prefetch=2
        ):
            await inbox.until(lambda: inbox.sessions == 2)
            proxy.drops_deliveries = False
            await inbox.until(lambda: len(recorder.firsts) == 3)

        assert sorted(recorder.firsts) == MANY[:3]
        assert await inbox.ready() == 0


@pytest.mark.long
async def test_consumer_continues_when_its_queue_is_deleted_and_declared_at_once(
    inbox: Inbox,
) -> None:
    """The broker then neither cancels the consumers nor delivers messages to them."""
    recorder = Recorder(inbox)
    async with inbox.consumed_by(
        lambda acknowledger: ConcurrentWorker(recorder.one, acknowledger), prefetch=2
    ):
        await inbox.put(MANY[0])
        await inbox.until(lambda: bool(recorder.seen))

        await asyncio.gather(inbox.channel.queue_delete(QUEUE), inbox.declare())
        await inbox.put(*MANY[1:4])

        await inbox.until(lambda: len(recorder.firsts) == 4)


@pytest.mark.requirement("P1")
async def test_message_of_no_service_is_dead_lettered_and_not_handled(inbox: Inbox) -> None:
    """The publisher of the test has no login in its messages, and one message has another."""
    recorder = Recorder(inbox)
    await inbox.put("foreign")
    own = aio_pika.Message(b"own", user_id=login_of(inbox.proxy.url))
    await inbox.channel.default_exchange.publish(own, QUEUE)
    before = metrics.REFUSED_MESSAGES.labels("foreign_sender")._value.get()  # noqa: SLF001  # no public name

    async with inbox.consumed_by(
        lambda acknowledger: ConcurrentWorker(recorder.one, acknowledger),
        accepts=lambda message: message.user_id is not None,
    ):
        await inbox.until(lambda: bool(recorder.seen))
    refused = metrics.REFUSED_MESSAGES.labels("foreign_sender")._value.get()  # noqa: SLF001  # as above

    assert recorder.seen == ["own"]
    assert refused == before + 1
    assert await inbox.ready() == 0


@pytest.mark.requirement("P6")
async def test_each_optional_queue_has_a_channel_and_may_appear_late(inbox: Inbox) -> None:
    """The first message of each channel has the delivery tag 1."""
    other = f"{QUEUE}.other"
    received: list[tuple[str, int]] = []

    async def keep(delivery: Delivery) -> Outcome:
        received.append((delivery.queue, delivery.message.tag))
        inbox.changed.set()
        return DONE

    async with inbox.consumed_by(
        lambda acknowledger: ConcurrentWorker(keep, acknowledger), optional=(QUEUE, other)
    ) as consumer:
        await inbox.put("first", "second")
        await inbox.until(lambda: len(received) == 2)
        await inbox.channel.declare_queue(other, durable=True)
        await inbox.channel.default_exchange.publish(aio_pika.Message(b"third"), other)
        await inbox.until(lambda: len(received) == 3)
        assert consumer.is_consuming
        await inbox.channel.queue_delete(other)

    assert received == [(QUEUE, 1), (QUEUE, 2), (other, 1)]
