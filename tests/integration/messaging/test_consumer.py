"""A consumer outlives its connections: nothing is lost, and order is kept."""

import asyncio
from collections.abc import AsyncIterator, Sequence

import pytest
from tests.integration.messaging.inbox import QUEUE, Inbox, open_inbox
from tests.rig.tcp_line import DeafLine

from harebell.messaging.acknowledge import DONE, Delivery, Outcome
from harebell.messaging.consumer import ConcurrentWorker, OrderedWorker

pytestmark = [pytest.mark.broker, pytest.mark.broker_version]

MANY = [f"{number:03}" for number in range(60)]


@pytest.fixture
async def inbox(amqp_url: str) -> AsyncIterator[Inbox]:
    async with open_inbox(amqp_url) as opened:
        yield opened


class Recorder:
    """Handles in order; can be made to stand still at one body."""

    def __init__(self, inbox: Inbox, *, halt_at: str | None = None) -> None:
        self.inbox = inbox
        self.halt_at = halt_at
        self.seen: list[str] = []
        self.batches: list[int] = []
        self.go_on = asyncio.Event()

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
            await self.go_on.wait()

    @property
    def firsts(self) -> list[str]:
        return list(dict.fromkeys(self.seen))


async def test_a_lost_connection_is_followed_by_another_and_order_is_kept(inbox: Inbox) -> None:
    recorder = Recorder(inbox, halt_at="020")
    await inbox.put(*MANY)

    async with inbox.consumed_by(
        lambda settler: OrderedWorker(recorder.many, settler, limit=7, gather_time=0)
    ):
        await inbox.until(lambda: "020" in recorder.seen)
        inbox.line.cut()
        await inbox.until(lambda: recorder.seen.count("020") == 2)
        recorder.go_on.set()
        await inbox.until(lambda: recorder.seen[-1] == MANY[-1])

    assert inbox.sessions == 2
    assert recorder.firsts == MANY
    again = recorder.seen[recorder.seen.index("020") + 1 :]
    assert again == sorted(again)
    assert await inbox.ready() == 0


async def test_what_was_in_hand_when_the_connection_went_comes_again(inbox: Inbox) -> None:
    recorder = Recorder(inbox, halt_at="001")
    await inbox.put(*MANY[:3])

    async with inbox.consumed_by(lambda settler: ConcurrentWorker(recorder.one, settler)):
        await inbox.until(lambda: len(recorder.seen) == 3)
        inbox.line.cut()
        await inbox.until(lambda: recorder.seen.count("001") == 2)
        recorder.go_on.set()

    assert set(recorder.seen) == set(MANY[:3])
    assert await inbox.ready() == 0


async def test_a_batch_is_what_is_at_hand_up_to_its_limit(inbox: Inbox) -> None:
    recorder = Recorder(inbox)
    await inbox.put(*MANY)

    async with inbox.consumed_by(
        lambda settler: OrderedWorker(recorder.many, settler, limit=25, gather_time=0.2)
    ):
        await inbox.until(lambda: len(recorder.seen) == len(MANY))

    assert recorder.seen == MANY
    assert max(recorder.batches) == 25


async def test_no_more_is_taken_than_prefetch_allows(inbox: Inbox) -> None:
    recorder = Recorder(inbox, halt_at="000")
    await inbox.put(*MANY[:10])

    async with inbox.consumed_by(
        lambda settler: OrderedWorker(recorder.many, settler, limit=100, gather_time=0), prefetch=4
    ):
        await inbox.until(lambda: recorder.seen == ["000"])
        left = await inbox.ready()
        recorder.go_on.set()
        await inbox.until(lambda: len(recorder.seen) == 10)

    assert left == 6


@pytest.mark.requirement("S73")
async def test_a_stop_ends_what_was_delivered_and_leaves_the_rest(inbox: Inbox) -> None:
    recorder = Recorder(inbox, halt_at="000")
    await inbox.put(*MANY[:10])

    async with inbox.consumed_by(
        lambda settler: OrderedWorker(recorder.many, settler, limit=100, gather_time=0), prefetch=4
    ):
        await inbox.until(lambda: recorder.seen == ["000"])
        asyncio.get_running_loop().call_later(0.1, recorder.go_on.set)

    assert recorder.seen[:4] == MANY[:4]
    assert await inbox.ready() == 10 - len(recorder.seen)


async def test_a_deleted_queue_ends_the_session_and_its_like_is_consumed_again(
    inbox: Inbox,
) -> None:
    recorder = Recorder(inbox)

    async with inbox.consumed_by(
        lambda settler: OrderedWorker(recorder.many, settler, limit=9, gather_time=0)
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


async def test_messages_that_wait_while_an_idle_consumer_is_shown_none_come_in_its_next_session(
    amqp_url: str,
) -> None:
    """The broker takes two for delivered, which never came, and there is no room for the third."""
    async with open_inbox(amqp_url, DeafLine) as inbox:
        line = inbox.line
        assert isinstance(line, DeafLine)
        line.withholds = True
        recorder = Recorder(inbox)
        await inbox.put(*MANY[:3])

        async with inbox.consumed_by(
            lambda settler: ConcurrentWorker(recorder.one, settler), prefetch=2
        ):
            await inbox.until(lambda: inbox.sessions == 2)
            line.withholds = False
            await inbox.until(lambda: len(recorder.firsts) == 3)

        assert sorted(recorder.firsts) == MANY[:3]
        assert await inbox.ready() == 0


async def test_a_consumer_of_a_queue_that_was_made_anew_at_once_goes_on_with_it(
    inbox: Inbox,
) -> None:
    """Within some milliseconds the broker tells its consumers nothing, nor shows them anything."""
    recorder = Recorder(inbox)
    async with inbox.consumed_by(
        lambda settler: ConcurrentWorker(recorder.one, settler), prefetch=2
    ):
        await inbox.put(MANY[0])
        await inbox.until(lambda: bool(recorder.seen))

        await asyncio.gather(inbox.channel.queue_delete(QUEUE), inbox.declare())
        await inbox.put(*MANY[1:4])

        await inbox.until(lambda: len(recorder.firsts) == 4)
