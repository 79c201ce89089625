"""The worker of fair batches: large ones beside small ones, their order and their interval."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import cast

from tests.simulation.loop import virtual_time

from harebell.messaging.acknowledge import DONE, Acknowledger, Delivery, Outcome
from harebell.messaging.fair_worker import MAX_PARALLEL, MAX_SMALL_BATCH, FairWorker
from harebell.messaging.received_message import ReceivedMessage

LARGE, SMALL = MAX_SMALL_BATCH + 1, 10  # bytes of a body
LARGE_TIME = 1.0  # seconds that the check of a large message takes
INTERVAL = 1.0  # seconds between two batches that are not full
LIMIT = 10  # deliveries of a batch


class Acknowledged:
    """An acknowledger that records the ids of the messages in the order of their ends."""

    def __init__(self) -> None:
        self.ids: list[str] = []

    async def acknowledge(
        self, deliveries: Sequence[Delivery], outcomes: Sequence[Outcome]
    ) -> None:
        assert list(outcomes) == [DONE] * len(deliveries)
        self.ids += [each.message_id or "" for each in deliveries]


class Checks:
    """A handler that takes `LARGE_TIME` for a large message, and records what it handles."""

    def __init__(self) -> None:
        self.active: list[str] = []
        self.most = 0
        self.most_of_a_queue = 0

    async def handle(self, deliveries: Sequence[Delivery]) -> Sequence[Outcome]:
        queues = {each.queue for each in deliveries}
        self.active += queues
        self.most = max(self.most, len(self.active))
        self.most_of_a_queue = max(self.most_of_a_queue, *map(self.active.count, self.active))
        await asyncio.sleep(LARGE_TIME if len(deliveries[0].body) == LARGE else 0.001)
        for queue in queues:
            self.active.remove(queue)
        return [DONE] * len(deliveries)


def message(id_: str, size: int) -> Delivery:
    """Return a message whose queue is the first letter of its id."""
    return Delivery(ReceivedMessage(body=b"x" * size, message_id=id_), id_[0])


def serve(messages: Sequence[Delivery], *, seconds: float) -> tuple[Acknowledged, Checks, bool]:
    """Deliver the messages, and return what happened within the time and whether a task remains."""
    acknowledged, checks = Acknowledged(), Checks()

    async def run() -> bool:
        before = asyncio.all_tasks()
        worker = FairWorker(
            checks.handle, cast("Acknowledger", acknowledged), limit=LIMIT, max_bytes=LARGE
        )
        for each in messages:
            await worker.put(each)
        await asyncio.sleep(seconds)
        await worker.drain(within=0)
        return asyncio.all_tasks() != before

    with virtual_time() as loop:
        is_left = loop.run_until_complete(run())
    return acknowledged, checks, is_left


def test_large_batch_delays_only_its_own_queue() -> None:
    messages = [message("a1", LARGE), message("a2", SMALL), message("b1", SMALL)]
    within, _, _ = serve(messages, seconds=LARGE_TIME / 2)
    after, checks, is_left = serve(messages, seconds=2 * LARGE_TIME)

    assert within.ids == ["b1"]
    assert after.ids == ["b1", "a1", "a2"]
    assert checks.most_of_a_queue == 1
    assert not is_left


def test_large_batches_are_bounded() -> None:
    acknowledged, checks, _ = serve(
        [message(f"{queue}1", LARGE) for queue in "abcdefgh"], seconds=3 * LARGE_TIME
    )

    assert checks.most == MAX_PARALLEL
    assert len(acknowledged.ids) == 8


def test_stop_ends_the_large_batches_without_an_acknowledgement() -> None:
    acknowledged, _, is_left = serve([message("a1", LARGE)], seconds=LARGE_TIME / 2)

    assert acknowledged.ids == []
    assert not is_left


def begins(arrivals: Mapping[float, Sequence[str]], *, size: int) -> list[tuple[float, list[str]]]:
    """Return when each batch begins, and its ids, for ids that arrive at certain seconds."""
    batches: list[tuple[float, list[str]]] = []

    async def run() -> None:
        loop = asyncio.get_running_loop()
        began = loop.time()

        async def handle(deliveries: Sequence[Delivery]) -> Sequence[Outcome]:
            ids = [each.message_id or "" for each in deliveries]
            batches.append((round(loop.time() - began, 6), ids))
            return [DONE] * len(deliveries)

        worker = FairWorker(
            handle,
            cast("Acknowledger", Acknowledged()),
            limit=LIMIT,
            max_bytes=LARGE,
            interval=INTERVAL,
        )
        for second, ids in arrivals.items():
            await asyncio.sleep(began + second - loop.time())
            for each in ids:
                await worker.put(message(each, size))
        await worker.drain(within=10 * INTERVAL)

    with virtual_time() as loop:
        loop.run_until_complete(run())
    return batches


def test_messages_that_follow_each_other_are_one_batch_after_the_interval() -> None:
    arrivals = {0.0: ["a1"], 0.2: ["a2"], 0.7: ["a3", "b1"], 1.4: ["a4"]}

    assert begins(arrivals, size=SMALL) == [
        (0.0, ["a1"]),
        (INTERVAL, ["a2", "a3", "b1"]),
        (2 * INTERVAL, ["a4"]),
    ]


def test_message_after_a_pause_does_not_wait() -> None:
    assert begins({0.0: ["a1"], 1.5: ["a2"]}, size=SMALL) == [(0.0, ["a1"]), (1.5, ["a2"])]


def test_full_batch_does_not_wait() -> None:
    ids = [f"a{index}" for index in range(LIMIT)]

    assert begins({0.0: ["a"], 0.2: ids}, size=SMALL) == [(0.0, ["a"]), (0.2, ids)]


def test_bytes_of_a_full_batch_do_not_wait() -> None:
    arrivals = {0.0: ["a1"], 0.2: ["a2", "a3"]}
    full, small = LARGE // 2, LARGE // 4

    assert begins(arrivals, size=full) == [(0.0, ["a1"]), (0.2, ["a2"]), (1.2, ["a3"])]
    assert begins(arrivals, size=small) == [(0.0, ["a1"]), (INTERVAL, ["a2", "a3"])]
