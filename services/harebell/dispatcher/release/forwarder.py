"""The forwarder: publication of ticket batches with retries, and tickets without a pool."""

import asyncio
import base64
from collections.abc import Iterable, Sequence

import structlog

from harebell.contract import amqp_names
from harebell.contract.dead_letter import DeadMessage
from harebell.contract.errors import BrokerUnavailable, HarebellError, Unroutable
from harebell.contract.ids import RunKey
from harebell.dispatcher import metrics
from harebell.dispatcher.release.queue import NO_SUCH_POOL, is_past_pool_deadline
from harebell.messaging.acknowledge import ABANDONED, DONE, Outcome
from harebell.messaging.dead_letters import dead_letter_of_message
from harebell.messaging.publisher import OutgoingMessage, Publisher
from harebell.messaging.ticket_batches import TicketHeader
from harebell.messaging.ticket_messages import TicketMessage, to_one_delay_queue
from harebell.messaging.topology.bus import DISPATCHER
from harebell.messaging.topology.delay_queues import REQUEUE_TTL_MS
from harebell.runtime import failpoint
from harebell.runtime.clock import Clock
from harebell.runtime.retries import backoff_delay

log = structlog.get_logger()


class PendingAck:
    """One delivery. Its outcome is `DONE` after the publication of its last ticket."""

    def __init__(self, tickets: int) -> None:
        self._unpublished = tickets
        self.outcome: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        if not tickets:
            self._end(DONE)

    def count_published(self) -> None:
        self._unpublished -= 1
        if not self._unpublished:
            self._end(DONE)

    def abandon(self) -> None:
        self._end(ABANDONED)

    def fail(self, error: Exception) -> None:
        if not self.outcome.done():
            self.outcome.set_exception(error)

    def _end(self, outcome: Outcome) -> None:
        if not self.outcome.done():  # a lost connection cancels the handler and its future
            self.outcome.set_result(outcome)


class PendingAcks:
    """The unpublished tickets of a dispatcher, each with the deliveries that contain it.

    A ticket that another delivery already contains is registered, and not queued a second time.
    """

    def __init__(self) -> None:
        self._deliveries: dict[tuple[RunKey, int], list[PendingAck]] = {}

    def __len__(self) -> int:
        return len(self._deliveries)

    def register(self, tickets: Sequence[TicketHeader]) -> tuple[PendingAck, list[TicketHeader]]:
        """Return the pending ack of a delivery, and its tickets that were not registered before."""
        pending = PendingAck(len(tickets))
        new_tickets = []
        for ticket in tickets:
            deliveries = self._deliveries.setdefault(ticket.identity, [])
            if not deliveries:
                new_tickets.append(ticket)
            deliveries.append(pending)
        return pending, new_tickets

    def published(self, tickets: Iterable[TicketHeader]) -> None:
        for pending in self._remove(tickets):
            pending.count_published()

    def abandon(self, tickets: Iterable[TicketHeader]) -> None:
        for pending in self._remove(tickets):
            pending.abandon()

    def fail(self, tickets: Iterable[TicketHeader], error: Exception) -> None:
        """Raise the error in the handlers of the deliveries, which then retry."""
        for pending in self._remove(tickets):
            pending.fail(error)

    def _remove(self, tickets: Iterable[TicketHeader]) -> list[PendingAck]:
        return [
            pending for ticket in tickets for pending in self._deliveries.pop(ticket.identity, ())
        ]


class Forwarder:
    """A publisher of ticket batches. One task publishes one batch and ends its pending acks."""

    def __init__(
        self,
        publisher: Publisher,
        clock: Clock,
        pending_acks: PendingAcks,
        *,
        tasks: asyncio.TaskGroup,
        stop: asyncio.Event,
    ) -> None:
        self._publisher = publisher
        self._clock = clock
        self._pending_acks = pending_acks
        self._tasks = tasks
        self._stop = stop
        self._is_failing = False

    def send(self, batches: Iterable[TicketMessage]) -> None:
        for batch in batches:
            self._tasks.create_task(self._forward(batch))

    async def _forward(self, batch: TicketMessage) -> None:
        try:
            try:
                await failpoint.reach("dispatcher.before_publish")
                await self._publish(batch)
                await failpoint.reach("dispatcher.after_publish")
            except Unroutable:
                await self._requeue_without_pool(batch)
        except Exception as error:  # noqa: BLE001  # the handler of the delivery decides
            self._pending_acks.fail(batch.tickets, error)
        else:
            self._pending_acks.published(batch.tickets)

    async def _publish(self, message: OutgoingMessage) -> None:
        """Publish a message and retry until RabbitMQ confirms it.

        Raise `Unroutable` if no work queue of the pool exists, and `BrokerUnavailable` at the stop.
        """
        tries = 0
        while True:
            try:
                await self._publisher.publish(message)
            except HarebellError as error:
                if _has_no_pool(message, error):
                    raise
                if self._stop.is_set():
                    reason = "The dispatcher stopped before RabbitMQ confirmed the message."
                    raise BrokerUnavailable(reason) from error
                self._log_outage(message, error)
            else:
                self._log_outage(message, None)
                return
            tries += 1
            await asyncio.sleep(backoff_delay(tries))

    def _log_outage(self, message: OutgoingMessage, error: HarebellError | None) -> None:
        """Log the begin and the end of an outage, and not each batch within it."""
        if error is not None and not self._is_failing:
            log.warning(
                "publishing failed",
                exchange=message.exchange,
                key=message.routing_key,
                error=error.code,
                reason=error.reason,
            )
        elif error is None and self._is_failing:
            log.info("publishing resumed", exchange=message.exchange)
        self._is_failing = error is not None

    async def _requeue_without_pool(self, batch: TicketMessage) -> None:
        """Requeue the tickets of an unknown pool, and dead-letter those past the deadline."""
        now = self._clock.now()
        dead = [ticket for ticket in batch.tickets if is_past_pool_deadline(ticket.due_at, now)]
        requeued = [
            ticket for ticket in batch.tickets if not is_past_pool_deadline(ticket.due_at, now)
        ]
        log.warning("pool missing", queue=batch.routing_key, tickets=len(requeued), dead=len(dead))
        metrics.NO_SUCH_POOL_TICKETS.inc(len(batch.tickets))
        for message in to_one_delay_queue(requeued, REQUEUE_TTL_MS):
            await self._publish(message)
        for ticket in dead:
            await self._publish(self._dead_letter(ticket))

    def _dead_letter(self, ticket: TicketHeader) -> OutgoingMessage:
        dead = DeadMessage(
            queue=DISPATCHER.name,
            message_id=f"{ticket.run_id}/{ticket.seq}",
            type=amqp_names.message_type("ticket.batch"),
            routing_key=ticket.queue,
            reason=NO_SUCH_POOL,
            error=f"No executor has declared the work queue {ticket.queue}.",
            dead_at=self._clock.now(),
            body=base64.b64encode(b"[" + ticket.raw + b"]").decode(),
        )
        return dead_letter_of_message(dead, run=ticket.run_id)


def _has_no_pool(message: OutgoingMessage, error: HarebellError) -> bool:
    """Return whether the work queue is missing, and not the exchange.

    The topology keeper declares a missing exchange again.
    """
    return message.exchange == amqp_names.WORK and error.code == Unroutable.code
