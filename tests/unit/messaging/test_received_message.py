"""The acknowledgement of several deliveries of one channel with as few methods as possible."""

import asyncio

from hypothesis import given
from hypothesis import strategies as st

from harebell.messaging.received_message import UnacknowledgedTags


class BrokerChannel:
    """A channel of a broker that knows its unacknowledged tags."""

    def __init__(self, tags: range) -> None:
        self.waiting = set(tags)
        self.methods = 0

    async def basic_ack(self, delivery_tag: int, multiple: bool = False) -> None:  # noqa: FBT001, FBT002  # the library's signature
        self.methods += 1
        assert delivery_tag in self.waiting, "the broker closes a channel for an unknown tag"
        self.waiting -= (
            {tag for tag in self.waiting if tag <= delivery_tag} if multiple else {delivery_tag}
        )

    async def basic_reject(self, delivery_tag: int, *, requeue: bool) -> None:
        assert not requeue
        self.methods += 1
        self.waiting.remove(delivery_tag)


def open_channel(count: int) -> tuple[BrokerChannel, UnacknowledgedTags]:
    channel = BrokerChannel(range(1, count + 1))
    tags = UnacknowledgedTags(channel)
    for tag in range(1, count + 1):
        tags.add(tag)
    return channel, tags


def test_batch_of_the_oldest_deliveries_needs_one_method() -> None:
    channel, tags = open_channel(5)

    asyncio.run(tags.acknowledge([3, 1, 2]))

    assert channel.waiting == {4, 5}
    assert channel.methods == 1


def test_rejected_delivery_does_not_hold_back_the_next_acknowledgement() -> None:
    channel, tags = open_channel(3)

    asyncio.run(tags.reject(2))
    asyncio.run(tags.acknowledge([1, 3]))

    assert not channel.waiting
    assert channel.methods == 2


def test_delivery_in_progress_stays_unacknowledged() -> None:
    channel, tags = open_channel(5)

    asyncio.run(tags.acknowledge([1, 3, 4]))

    assert channel.waiting == {2, 5}


@given(st.permutations(range(1, 13)), st.lists(st.integers(1, 6), min_size=1, max_size=12))
def test_each_acknowledgement_contains_exactly_the_finished_deliveries(
    order: list[int], sizes: list[int]
) -> None:
    async def acknowledge_batches() -> None:
        rest, finished = order, set[int]()
        for size in sizes:
            batch, rest = rest[:size], rest[size:]
            await tags.acknowledge(batch)
            finished |= set(batch)

            assert channel.waiting == set(range(1, 13)) - finished

    channel, tags = open_channel(12)
    asyncio.run(acknowledge_batches())


def test_repeated_acknowledgement_changes_nothing() -> None:
    channel, tags = open_channel(2)
    asyncio.run(tags.acknowledge([1]))

    asyncio.run(tags.acknowledge([1]))

    assert channel.waiting == {2}
    assert channel.methods == 1
