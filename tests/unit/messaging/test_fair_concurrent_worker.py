"""The worker of queries: a bounded number at a time, and the queues of tenants in turn."""

import asyncio
from collections.abc import Sequence
from typing import Any, cast

import pytest
from tests.simulation.loop import virtual_time

from harebell.messaging.acknowledge import DONE, Acknowledger, Delivery, Outcome
from harebell.messaging.fair_worker import FairConcurrentWorker

LIMIT, QUEUE_LIMIT = 4, 2


class Acknowledged:
    """An acknowledger that records the queues of its deliveries."""

    def __init__(self) -> None:
        self.queues: list[str] = []

    async def acknowledge(
        self, deliveries: Sequence[Delivery], outcomes: Sequence[Outcome]
    ) -> None:
        assert list(outcomes) == [DONE] * len(deliveries)
        self.queues += [each.queue for each in deliveries]


class Handler:
    """A handler that takes a second, or that waits until the end of the test."""

    def __init__(self, *, hangs: str = "") -> None:
        self.started: list[str] = []
        self.active = 0
        self.most = 0
        self._hangs = hangs

    async def handle(self, delivery: Delivery) -> Outcome:
        self.started.append(delivery.queue)
        self.active += 1
        self.most = max(self.most, self.active)
        await asyncio.sleep(3600 if delivery.queue == self._hangs else 1)
        self.active -= 1
        return DONE


async def serve(
    handler: Handler, queues: Sequence[str], *, seconds: float
) -> tuple[list[str], bool]:
    """Deliver one message of each queue, and return the acknowledged ones and the idleness."""
    acknowledged = Acknowledged()
    worker = FairConcurrentWorker(
        handler.handle,
        cast("Acknowledger", acknowledged),
        limit=LIMIT,
        limit_of=lambda _: QUEUE_LIMIT,
    )
    for queue in queues:
        await worker.put(Delivery(cast("Any", None), queue))
    await asyncio.sleep(seconds)
    is_idle = worker.is_idle
    await worker.drain(within=0)
    return acknowledged.queues, is_idle


@pytest.mark.requirement("P6")
def test_query_of_a_small_tenant_starts_before_the_waiting_ones_of_a_large_tenant() -> None:
    handler = Handler()
    with virtual_time() as loop:
        done, is_idle = loop.run_until_complete(
            serve(handler, ["large"] * 10 + ["small"], seconds=30)
        )

    assert handler.started[:3] == ["large", "large", "small"]
    assert (len(done), is_idle) == (11, True)


def test_queues_are_served_in_turn_within_the_bound_of_all() -> None:
    handler = Handler()
    with virtual_time() as loop:
        loop.run_until_complete(serve(handler, [*"aaaabbbbcccc"], seconds=30))

    assert handler.most == LIMIT
    assert set(handler.started[LIMIT : 2 * LIMIT]) == {*"abc"}
    assert sorted(handler.started) == [*"aaaabbbbcccc"]


@pytest.mark.requirement("P6")
def test_hanging_queries_of_one_tenant_leave_room_for_another_tenant() -> None:
    handler = Handler(hangs="large")
    with virtual_time() as loop:
        done, is_idle = loop.run_until_complete(
            serve(handler, ["large"] * 10 + ["small"] * 5, seconds=10)
        )

    assert done == ["small"] * 5
    assert handler.started.count("large") == QUEUE_LIMIT
    assert not is_idle


def test_stop_starts_no_waiting_query() -> None:
    handler = Handler()
    with virtual_time() as loop:
        done, _ = loop.run_until_complete(serve(handler, ["large"] * 10, seconds=0.5))

    assert (done, len(handler.started)) == ([], QUEUE_LIMIT)
