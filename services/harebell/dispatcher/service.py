"""The dispatcher service: a delivery is acknowledged when all its tickets are published."""

import asyncio
from collections.abc import Iterable, Sequence
from datetime import datetime
from functools import partial
from typing import Final

from aio_pika.abc import AbstractConnection

from harebell.bootstrap.parts import ServiceParts, run_once
from harebell.bootstrap.service_context import ServiceContext, open_service
from harebell.contract.amqp_names import PROBE_HEADERS
from harebell.dispatcher import metrics
from harebell.dispatcher.breakers.breaker import BreakerConfig
from harebell.dispatcher.breakers.registry import BreakerRegistry
from harebell.dispatcher.breakers.sync import BreakerSync
from harebell.dispatcher.release.forwarder import Forwarder, PendingAcks
from harebell.dispatcher.release.gates import Gates, RateGate, target_rates, tenant_rates
from harebell.dispatcher.release.queue import (
    MAX_OPEN_DELIVERIES,
    MAX_QUEUED_TICKETS,
    ArrivalDecision,
    ReleaseQueue,
    decide_on_arrival,
)
from harebell.messaging.acknowledge import ABANDONED, Delivery, Outcome
from harebell.messaging.consumer import ConcurrentWorker, Consumer
from harebell.messaging.publisher import Publisher
from harebell.messaging.ticket_batches import TicketHeader, parse_ticket_headers
from harebell.messaging.ticket_messages import to_delay_queues, to_one_delay_queue, to_work_queues
from harebell.messaging.topology.bus import DISPATCHER
from harebell.runtime.clock import Clock
from harebell.runtime.settings import DispatcherSettings

# Seconds between two releases. A shorter interval costs CPU and does not reduce the lateness.
RELEASE_INTERVAL: Final = 0.100
RELEASE_CHUNK: Final = 2_000  # tickets that become messages before other tasks run
# Ticket batches. Above MAX_OPEN_DELIVERIES the dispatcher sends tickets to delay queues.
PREFETCH: Final = 4_000


class Dispatcher:
    """The path of a ticket: `handle` receives it, and `handle` or `run` releases it."""

    def __init__(
        self,
        publisher: Publisher,
        clock: Clock,
        *,
        work_batch_size: int,
        tasks: asyncio.TaskGroup,
        stop: asyncio.Event,
        gates: Gates,
    ) -> None:
        self._clock = clock
        self._gates = gates
        self._work_batch_size = work_batch_size
        self._stop = stop
        self._queue = ReleaseQueue()
        self._pending_acks = PendingAcks()
        self._forwarder = Forwarder(publisher, clock, self._pending_acks, tasks=tasks, stop=stop)
        self._open_deliveries = 0
        metrics.QUEUED_TICKETS.set_function(lambda: len(self._pending_acks))

    async def handle(self, delivery: Delivery) -> Outcome:
        """Register the tickets of a batch and wait until all of them are published.

        After a crash before the acknowledgement, the batch comes again, and the rows of the runs
        reject the second claim. Raise `InvalidInput` for a body that is not a ticket batch.
        """
        tickets = parse_ticket_headers(delivery.trusted_body)
        if self._stop.is_set():
            return ABANDONED
        pending, new_tickets = self._pending_acks.register(tickets)
        self._open_deliveries += 1
        try:
            self._route(new_tickets)
            return await pending.outcome
        finally:
            self._open_deliveries -= 1

    async def run(self) -> None:
        """Release due tickets until the stop.

        RabbitMQ then delivers the queued tickets to another dispatcher.
        """
        while not self._stop.is_set():
            await asyncio.sleep(RELEASE_INTERVAL)
            await self._release_due()
        self._pending_acks.abandon(self._queue.drain())

    def _route(self, tickets: Sequence[TicketHeader]) -> None:
        now = self._clock.now()
        is_full = (
            len(self._pending_acks) > MAX_QUEUED_TICKETS
            or self._open_deliveries > MAX_OPEN_DELIVERIES
        )
        late, early = [], []
        for ticket in tickets:
            match decide_on_arrival(ticket.due_at - now, is_full=is_full):
                case ArrivalDecision.QUEUE:
                    self._queue.push(ticket)
                case ArrivalDecision.RELEASE:
                    late.append(ticket)
                case ArrivalDecision.DELAY:
                    early.append(ticket)
        metrics.LATE_TICKETS.inc(self._release(late, now))
        self._forwarder.send(to_delay_queues(early, now))

    async def _release_due(self) -> None:
        now = self._clock.now()
        tickets = self._queue.due(now)
        for start in range(0, len(tickets), RELEASE_CHUNK):
            self._release(tickets[start : start + RELEASE_CHUNK], now)
            await asyncio.sleep(0)

    def _release(self, tickets: Sequence[TicketHeader], now: datetime) -> int:
        """Send tickets to the work queues, and deferred tickets to a delay queue.

        Return the number of tickets for the work queues.
        """
        result = self._gates.apply(tickets, now)
        self._forwarder.send(to_work_queues(result.free, self._work_batch_size))
        probes = to_work_queues(result.probes, self._work_batch_size, headers=PROBE_HEADERS)
        self._forwarder.send(probes)
        for ttl_ms, deferred in result.deferred.items():
            self._forwarder.send(to_one_delay_queue(deferred, ttl_ms))
        self._pending_acks.published(result.duplicates)
        return len(result.free) + len(result.probes)


async def serve(settings: DispatcherSettings, stop: asyncio.Event) -> None:
    """Run the dispatcher until `stop` is set. A failed loop ends the service."""
    async with (
        open_service(settings, "dispatcher", stop) as context,
        asyncio.TaskGroup() as tasks,
    ):
        await dispatcher_parts(settings, context, tasks).run(context, keep=run_once)


def dispatcher_parts(
    settings: DispatcherSettings, context: ServiceContext, tasks: asyncio.TaskGroup
) -> ServiceParts:
    """Build the consumer and the loops of a dispatcher, which publishes in `tasks`."""
    breakers = BreakerRegistry(_breaker_config(settings), automatic=settings.breaker_mode == "auto")
    # These gates count released tickets, so the gate that counts none comes first.
    rates = (
        target_rates(settings.max_target_rate),
        tenant_rates(lambda: context.policies.current),
    )
    gates = Gates(breakers, *rates)
    _show_deferred(gates, rates, context.clock)
    sync = BreakerSync(context, breakers, gates)
    dispatcher = Dispatcher(
        context.publisher,
        context.clock,
        work_batch_size=settings.work_batch_size,
        tasks=tasks,
        stop=context.stop,
        gates=gates,
    )

    async def connect() -> AbstractConnection:
        await sync.wait_for_snapshot(settings.breaker_startup_timeout.total_seconds())
        return await context.connect()

    tickets = Consumer(
        DISPATCHER.name,
        connect,
        lambda: ConcurrentWorker(dispatcher.handle, context.acknowledger),
        prefetch=PREFETCH,
        accepts=context.is_from_service,
    )
    return ServiceParts(
        consumers={DISPATCHER.name: tickets},
        loops={"breakers": sync.run, "release": dispatcher.run},
    )


def _show_deferred(gates: Gates, rates: Iterable[RateGate], clock: Clock) -> None:
    for each in rates:
        metrics.DEFERRED_TICKETS.labels(each.gate).set_function(
            partial(_deferred_count, gates, each.gate, clock)
        )


def _deferred_count(gates: Gates, gate: str, clock: Clock) -> int:
    return gates.deferred_count(gate, clock.now())


def _breaker_config(settings: DispatcherSettings) -> BreakerConfig:
    return BreakerConfig(
        window=settings.breaker_window,
        min_calls=settings.breaker_min_calls,
        failure_ratio=settings.breaker_failure_ratio,
        consecutive_failures=settings.breaker_consecutive_failures,
        open_duration=settings.breaker_open_duration,
        half_open_calls=settings.breaker_half_open_calls,
    )
