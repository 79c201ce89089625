"""Publishing tickets on, patiently; and what becomes of those whose pool nobody declared."""

import asyncio
import base64
from collections.abc import Iterable

import structlog

from harebell.contract import amqp_names
from harebell.contract.dead_letter import DeadMessage
from harebell.contract.errors import BrokerUnavailable, HarebellError, Unroutable
from harebell.dispatcher import metrics
from harebell.dispatcher.release.pending_acks import PendingAcks
from harebell.dispatcher.release.queue import NO_SUCH_POOL, is_past_pool_deadline
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


class Forwarder:
    """Each bundle is a task of its own, and ends with the receipts of its tickets."""

    def __init__(
        self,
        publisher: Publisher,
        clock: Clock,
        receipts: PendingAcks,
        *,
        tasks: asyncio.TaskGroup,
        stop: asyncio.Event,
    ) -> None:
        self._publisher = publisher
        self._clock = clock
        self._receipts = receipts
        self._tasks = tasks
        self._stop = stop
        self._is_failing = False

    def send(self, bundles: Iterable[TicketMessage]) -> None:
        for bundle in bundles:
            self._tasks.create_task(self._forward(bundle))

    async def _forward(self, bundle: TicketMessage) -> None:
        try:
            try:
                await failpoint.reach("dispatcher.before_publish")
                await self._publish(bundle)
                await failpoint.reach("dispatcher.after_publish")
            except Unroutable:
                await self._without_pool(bundle)
        except Exception as error:  # noqa: BLE001  # judged where deliveries are handled
            self._receipts.fail(bundle.tickets, error)
        else:
            self._receipts.published(bundle.tickets)

    async def _publish(self, message: OutgoingMessage) -> None:
        """Until it is confirmed; raises `Unroutable` only for work without a queue."""
        tries = 0
        while True:
            try:
                await self._publisher.publish(message)
            except HarebellError as error:
                if _is_without_pool(message, error):
                    raise
                if self._stop.is_set():
                    raise BrokerUnavailable("not published before the stop") from error
                self._tell(message, error)
            else:
                self._tell(message, None)
                return
            tries += 1
            await asyncio.sleep(backoff_delay(tries))

    def _tell(self, message: OutgoingMessage, error: HarebellError | None) -> None:
        """Log the beginning and the end of an outage, not every bundle of it."""
        if error is not None and not self._is_failing:
            log.warning(
                "publishing fails",
                exchange=message.exchange,
                key=message.routing_key,
                error=error.code,
                reason=error.reason,
            )
        elif error is None and self._is_failing:
            log.info("publishing again", exchange=message.exchange)
        self._is_failing = error is not None

    async def _without_pool(self, bundle: TicketMessage) -> None:
        now = self._clock.now()
        given_up = [
            ticket for ticket in bundle.tickets if is_past_pool_deadline(ticket.due_at, now)
        ]
        again = [
            ticket for ticket in bundle.tickets if not is_past_pool_deadline(ticket.due_at, now)
        ]
        log.warning(
            "no such pool", queue=bundle.routing_key, tickets=len(again), given_up=len(given_up)
        )
        metrics.NO_SUCH_POOL_TICKETS.inc(len(bundle.tickets))
        for message in (*to_one_delay_queue(again, REQUEUE_TTL_MS), *map(self._letter, given_up)):
            await self._publish(message)

    def _letter(self, ticket: TicketHeader) -> OutgoingMessage:
        dead = DeadMessage(
            queue=DISPATCHER.name,
            message_id=f"{ticket.run_id}/{ticket.seq}",
            type=amqp_names.message_type("ticket.batch"),
            routing_key=ticket.queue,
            reason=NO_SUCH_POOL,
            error=f"no executor ever declared a queue for {ticket.queue}",
            dead_at=self._clock.now(),
            body=base64.b64encode(b"[" + ticket.raw + b"]").decode(),
        )
        return dead_letter_of_message(dead, run=ticket.run_id)


def _is_without_pool(message: OutgoingMessage, error: HarebellError) -> bool:
    """As against an exchange that is gone, which is declared again when it is found missing."""
    return message.exchange == amqp_names.WORK and error.code == Unroutable.code
