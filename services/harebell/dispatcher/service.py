"""The shell: a delivery is acknowledged when all its tickets have been published on."""

import asyncio
from collections.abc import Sequence
from datetime import datetime
from typing import Final

from harebell.bootstrap.process import run_until
from harebell.bootstrap.service_context import open_service
from harebell.dispatcher import metrics
from harebell.dispatcher.breakers.breaker import BreakerConfig
from harebell.dispatcher.breakers.registry import BreakerRegistry
from harebell.dispatcher.breakers.sync import BreakerSync
from harebell.dispatcher.release.forwarder import Forwarder
from harebell.dispatcher.release.gates import Gates
from harebell.dispatcher.release.pending_acks import PendingAcks
from harebell.dispatcher.release.queue import (
    MAX_DELIVERIES,
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

RELEASE_INTERVAL: Final = (
    0.100  # seconds between looks at what is due; a shorter one costs and gains nothing
)
AT_A_TIME: Final = 2_000  # tickets made into messages before other work gets its turn
PREFETCH: Final = 4_000  # bundles; what comes above MAX_DELIVERIES is sent on through the tiers


class Dispatcher:
    """Tickets come in by `handle`, and leave by `run` or at once."""

    def __init__(
        self,
        publisher: Publisher,
        clock: Clock,
        *,
        bundle_max: int,
        tasks: asyncio.TaskGroup,
        stop: asyncio.Event,
        gates: Gates | None = None,
    ) -> None:
        self._clock = clock
        self._gates = gates or Gates()
        self._bundle_max = bundle_max
        self._stop = stop
        self._heap = ReleaseQueue()
        self._receipts = PendingAcks()
        self._forwarder = Forwarder(publisher, clock, self._receipts, tasks=tasks, stop=stop)
        self._deliveries = 0
        metrics.QUEUED_TICKETS.set_function(lambda: len(self._receipts))

    async def handle(self, delivery: Delivery) -> Outcome:
        tickets = parse_ticket_headers(delivery.trusted_body)
        if self._stop.is_set():
            return ABANDONED
        receipt, fresh = self._receipts.register(tickets)
        self._deliveries += 1
        try:
            self._place(fresh)
            return await receipt.outcome
        finally:
            self._deliveries -= 1

    async def run(self) -> None:
        """Release on the beat until the stop; what is held then comes again, to whoever is left."""
        while not self._stop.is_set():
            await asyncio.sleep(RELEASE_INTERVAL)
            await self._release()
        self._receipts.abandon(self._heap.drain())

    def _place(self, tickets: Sequence[TicketHeader]) -> None:
        now = self._clock.now()
        full = len(self._receipts) > MAX_QUEUED_TICKETS or self._deliveries > MAX_DELIVERIES
        late, early = [], []
        for ticket in tickets:
            match decide_on_arrival(ticket.due_at - now, full=full):
                case ArrivalDecision.QUEUE:
                    self._heap.push(ticket)
                case ArrivalDecision.RELEASE:
                    late.append(ticket)
                case ArrivalDecision.DELAY:
                    early.append(ticket)
        metrics.LATE_TICKETS.inc(self._let_go(late, now))
        self._forwarder.send(to_delay_queues(early, now))

    async def _release(self) -> None:
        now = self._clock.now()
        tickets = self._heap.due(now)
        for start in range(0, len(tickets), AT_A_TIME):
            self._let_go(tickets[start : start + AT_A_TIME], now)
            await asyncio.sleep(0)

    def _let_go(self, tickets: Sequence[TicketHeader], now: datetime) -> int:
        """To the executors, but for what a gate holds back: that goes round through a tier.

        How many went to the executors.
        """
        split = self._gates.apply(tickets, now)
        self._forwarder.send(to_work_queues(split.free, self._bundle_max))
        for tier, held in split.deferred.items():
            self._forwarder.send(to_one_delay_queue(held, tier))
        self._receipts.published(split.duplicates)
        return len(split.free)


async def serve(settings: DispatcherSettings, stop: asyncio.Event) -> None:
    async with (
        open_service(settings, "dispatcher", stop) as parts,
        asyncio.TaskGroup() as tasks,
    ):
        breakers = BreakerRegistry(_rule(settings), automatic=settings.breaker_mode == "auto")
        gates = Gates(breakers)
        hearing = BreakerSync(parts, breakers, gates)
        dispatcher = Dispatcher(
            parts.publisher,
            parts.clock,
            bundle_max=settings.work_batch_size,
            tasks=tasks,
            stop=stop,
            gates=gates,
        )
        consumer = Consumer(
            DISPATCHER.name,
            parts.connect,
            lambda: ConcurrentWorker(dispatcher.handle, parts.settler),
            prefetch=PREFETCH,
        )
        parts.health.check("consuming", lambda: consumer.is_consuming)

        async def consume() -> None:
            await hearing.wait_for_snapshot(settings.breaker_startup_timeout.total_seconds())
            await consumer.run(stop)

        await run_until(
            stop,
            consuming=[consume()],
            background=[parts.keep(), hearing.run(), dispatcher.run()],
        )


def _rule(settings: DispatcherSettings) -> BreakerConfig:
    return BreakerConfig(
        window=settings.breaker_window,
        min_calls=settings.breaker_min_calls,
        failure_ratio=settings.breaker_failure_ratio,
        open_duration=settings.breaker_open_duration,
        half_open_calls=settings.breaker_half_open_calls,
    )
