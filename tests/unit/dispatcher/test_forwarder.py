"""Publishing on, over a link that fails."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import datetime

import aio_pika
import pytest
from tests.fakes.tickets import NINE, crowd, routed

from harebell.client.connection import PUBLISH_TIMEOUT, Connection
from harebell.contract import amqp_names
from harebell.contract.errors import BrokerUnavailable, NotAllowed, Unroutable
from harebell.dispatcher.release.forwarder import Forwarder
from harebell.dispatcher.release.pending_acks import PendingAck, PendingAcks
from harebell.messaging.acknowledge import DONE
from harebell.messaging.publisher import Publisher
from harebell.messaging.ticket_batches import TicketHeader
from harebell.messaging.ticket_messages import to_delay_queues, to_work_queues
from harebell.messaging.topology.delay_queues import REQUEUE_TTL_MS, delay_queue_key
from harebell.runtime.clock import Clock


class FlakyLink(Connection):
    """Fails as it is told, then keeps what is published."""

    def __init__(self, *failures: Exception) -> None:
        super().__init__("amqp://nowhere", name="test", properties={})
        self._failures = deque(failures)
        self.published: list[tuple[str, str]] = []

    async def publish(
        self,
        exchange: str,
        routing_key: str,
        message: aio_pika.Message,  # noqa: ARG002
        *,
        timeout: float = PUBLISH_TIMEOUT,  # noqa: ASYNC109  # noqa: ARG002, ASYNC109
    ) -> None:
        if self._failures:
            raise self._failures.popleft()
        self.published.append((exchange, routing_key))


@dataclass
class Desk:
    receipts: PendingAcks
    tasks: asyncio.TaskGroup
    clock: Clock
    stop: asyncio.Event

    def over(self, link: FlakyLink) -> Forwarder:
        return Forwarder(
            Publisher(link), self.clock, self.receipts, tasks=self.tasks, stop=self.stop
        )

    def take(self, tickets: list[TicketHeader]) -> PendingAck:
        receipt, _ = self.receipts.register(tickets)
        return receipt


@pytest.fixture
async def desk() -> AsyncIterator[Desk]:
    async def nine() -> datetime:
        return NINE

    clock = Clock(nine)
    await clock.refresh()
    async with asyncio.timeout(10), asyncio.TaskGroup() as tasks:
        yield Desk(PendingAcks(), tasks, clock, asyncio.Event())


@pytest.mark.parametrize(
    "failure",
    [
        BrokerUnavailable("not confirmed"),
        NotAllowed("permissions are wrong for now"),
        Unroutable("there is no exchange", code="no_exchange"),
    ],
)
async def test_a_publish_that_fails_is_tried_again(desk: Desk, failure: Exception) -> None:
    link = FlakyLink(failure, failure)
    tickets = crowd(3)
    receipt = desk.take(tickets)

    desk.over(link).send(to_work_queues(tickets, 20))

    assert await receipt.outcome == DONE
    assert link.published == [(amqp_names.WORK, "default.normal")]


async def test_a_tier_that_is_missing_is_waited_for(desk: Desk) -> None:
    link = FlakyLink(Unroutable("no queue is bound"))
    tickets = crowd(1)
    receipt = desk.take(tickets)

    desk.over(link).send(to_delay_queues(tickets, NINE))

    assert await receipt.outcome == DONE
    assert link.published == [(amqp_names.DUE, amqp_names.DUE_KEY)]


async def test_work_without_a_queue_circles_and_its_delivery_is_done(desk: Desk) -> None:
    link = FlakyLink(Unroutable("no queue is bound"))
    tickets = [routed(1, pool="mail")]
    receipt = desk.take(tickets)

    desk.over(link).send(to_work_queues(tickets, 20))

    assert await receipt.outcome == DONE
    assert link.published == [(amqp_names.DELAY, delay_queue_key(REQUEUE_TTL_MS))]


async def test_after_the_stop_a_failure_is_not_waited_out(desk: Desk) -> None:
    link = FlakyLink(NotAllowed("permissions"))
    tickets = crowd(1)
    receipt = desk.take(tickets)
    desk.stop.set()

    desk.over(link).send(to_work_queues(tickets, 20))

    with pytest.raises(BrokerUnavailable):  # which dead-letters nothing
        await receipt.outcome


async def test_a_failure_that_nobody_foresaw_is_the_handlers(desk: Desk) -> None:
    link = FlakyLink(ZeroDivisionError())
    tickets = crowd(1)
    receipt = desk.take(tickets)

    desk.over(link).send(to_work_queues(tickets, 20))

    with pytest.raises(ZeroDivisionError):
        await receipt.outcome
    assert len(desk.receipts) == 0
