"""Tests of the forwarder with a connection that fails."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import datetime

import aio_pika
import pytest
from tests.fakes.tickets import NINE, header, headers

from harebell.connection.amqp import PUBLISH_TIMEOUT, Connection
from harebell.contract import amqp_names
from harebell.contract.errors import BrokerUnavailable, NotAllowed, Unroutable
from harebell.dispatcher.release.forwarder import Forwarder, PendingAck, PendingAcks
from harebell.messaging.acknowledge import DONE
from harebell.messaging.publisher import Publisher
from harebell.messaging.ticket_batches import TicketHeader
from harebell.messaging.ticket_messages import to_delay_queues, to_work_queues
from harebell.messaging.topology.delay_queues import REQUEUE_TTL_MS, delay_queue_key
from harebell.runtime.clock import Clock


class FailingConnection(Connection):
    """A connection that raises the given errors and then records each publish."""

    def __init__(self, *failures: Exception) -> None:
        super().__init__("amqp://nowhere", name="test", properties={})
        self._failures = deque(failures)
        self.published: list[tuple[str, str]] = []

    async def publish(
        self,
        exchange: str,
        routing_key: str,
        message: aio_pika.Message,  # noqa: ARG002  # a parameter of the base class
        *,
        timeout: float = PUBLISH_TIMEOUT,  # noqa: ARG002, ASYNC109  # as in the base class
    ) -> None:
        if self._failures:
            raise self._failures.popleft()
        self.published.append((exchange, routing_key))


@dataclass(kw_only=True)
class Rig:
    """The collaborators of a forwarder."""

    pending_acks: PendingAcks
    tasks: asyncio.TaskGroup
    clock: Clock
    stop: asyncio.Event

    def forwarder(self, connection: FailingConnection) -> Forwarder:
        return Forwarder(
            Publisher(connection), self.clock, self.pending_acks, tasks=self.tasks, stop=self.stop
        )

    def register(self, tickets: list[TicketHeader]) -> PendingAck:
        pending, _ = self.pending_acks.register(tickets)
        return pending


@pytest.fixture
async def rig() -> AsyncIterator[Rig]:
    async def nine() -> datetime:
        return NINE

    clock = Clock(nine)
    await clock.refresh()
    async with asyncio.timeout(10), asyncio.TaskGroup() as tasks:
        yield Rig(pending_acks=PendingAcks(), tasks=tasks, clock=clock, stop=asyncio.Event())


@pytest.mark.parametrize(
    "failure",
    [
        BrokerUnavailable("The broker did not confirm the message."),
        NotAllowed("The user has no permission."),
        Unroutable("The exchange does not exist.", code="no_exchange"),
    ],
)
async def test_forwarder_retries_a_failed_publish(rig: Rig, failure: Exception) -> None:
    connection = FailingConnection(failure, failure)
    tickets = headers(3)
    pending = rig.register(tickets)

    rig.forwarder(connection).send(to_work_queues(tickets, 20))

    assert await pending.outcome == DONE
    assert connection.published == [(amqp_names.WORK, "default.normal")]


async def test_forwarder_retries_when_a_delay_queue_is_missing(rig: Rig) -> None:
    connection = FailingConnection(Unroutable("No queue is bound."))
    tickets = headers(1)
    pending = rig.register(tickets)

    rig.forwarder(connection).send(to_delay_queues(tickets, NINE))

    assert await pending.outcome == DONE
    assert connection.published == [(amqp_names.DUE, amqp_names.DUE_KEY)]


async def test_forwarder_delays_tickets_when_their_pool_has_no_queue(rig: Rig) -> None:
    connection = FailingConnection(Unroutable("No queue is bound."))
    tickets = [header(1, pool="mail")]
    pending = rig.register(tickets)

    rig.forwarder(connection).send(to_work_queues(tickets, 20))

    assert await pending.outcome == DONE
    assert connection.published == [(amqp_names.DELAY, delay_queue_key(REQUEUE_TTL_MS))]


async def test_forwarder_does_not_retry_after_the_stop(rig: Rig) -> None:
    connection = FailingConnection(NotAllowed("The user has no permission."))
    tickets = headers(1)
    pending = rig.register(tickets)
    rig.stop.set()

    rig.forwarder(connection).send(to_work_queues(tickets, 20))

    with pytest.raises(BrokerUnavailable):  # a transient error, so no ticket becomes a dead letter
        await pending.outcome


async def test_handler_raises_an_unexpected_error_of_the_forwarder(rig: Rig) -> None:
    connection = FailingConnection(ZeroDivisionError())
    tickets = headers(1)
    pending = rig.register(tickets)

    rig.forwarder(connection).send(to_work_queues(tickets, 20))

    with pytest.raises(ZeroDivisionError):
        await pending.outcome
    assert len(rig.pending_acks) == 0
