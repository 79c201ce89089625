"""The shell: a delivery is acknowledged when all its tickets have been published on."""

import asyncio
from collections.abc import Sequence
from datetime import datetime
from typing import Final

from harebell.dispatcher.breaker import Rule
from harebell.dispatcher.breakers import Breakers
from harebell.dispatcher.core import MAX_DELIVERIES, MAX_HELD, Arrival, ReleaseHeap, on_arrival
from harebell.dispatcher.forwarder import Forwarder
from harebell.dispatcher.gates import Gates
from harebell.dispatcher.hearing import Hearing
from harebell.dispatcher.receipts import Receipts
from harebell.kernel import metrics
from harebell.kernel.amqp.bundle import circling, waiting, working
from harebell.kernel.amqp.consume import ABANDONED, Delivery, Outcome
from harebell.kernel.amqp.publish import Publisher
from harebell.kernel.amqp.session import Concurrent, Consumer
from harebell.kernel.bus import DISPATCHER
from harebell.kernel.clock import Clock
from harebell.kernel.lifecycle import open_parts, run_until
from harebell.kernel.routing import Routed, read_bundle
from harebell.kernel.settings import DispatcherSettings

BEAT: Final = 0.100  # seconds between looks at what is due; a shorter one costs and gains nothing
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
        self._heap = ReleaseHeap()
        self._receipts = Receipts()
        self._forwarder = Forwarder(publisher, clock, self._receipts, tasks=tasks, stop=stop)
        self._deliveries = 0
        metrics.HELD.set_function(lambda: len(self._receipts))

    async def handle(self, delivery: Delivery) -> Outcome:
        tickets = read_bundle(delivery.own_body)
        if self._stop.is_set():
            return ABANDONED
        receipt, fresh = self._receipts.take(tickets)
        self._deliveries += 1
        try:
            self._place(fresh)
            return await receipt.outcome
        finally:
            self._deliveries -= 1

    async def run(self) -> None:
        """Release on the beat until the stop; what is held then comes again, to whoever is left."""
        while not self._stop.is_set():
            await asyncio.sleep(BEAT)
            await self._release()
        self._receipts.abandon(self._heap.drain())

    def _place(self, tickets: Sequence[Routed]) -> None:
        now = self._clock.now()
        full = len(self._receipts) > MAX_HELD or self._deliveries > MAX_DELIVERIES
        late, early = [], []
        for ticket in tickets:
            match on_arrival(ticket.due_at - now, full=full):
                case Arrival.HOLD:
                    self._heap.push(ticket)
                case Arrival.RELEASE:
                    late.append(ticket)
                case Arrival.DELAY:
                    early.append(ticket)
        metrics.LATE_BUNDLES.inc(self._let_go(late, now))
        self._forwarder.send(waiting(early, now))

    async def _release(self) -> None:
        now = self._clock.now()
        tickets = self._heap.due(now)
        for start in range(0, len(tickets), AT_A_TIME):
            self._let_go(tickets[start : start + AT_A_TIME], now)
            await asyncio.sleep(0)

    def _let_go(self, tickets: Sequence[Routed], now: datetime) -> int:
        """To the executors, but for what a gate holds back: that goes round through a tier.

        How many went to the executors.
        """
        split = self._gates.sort(tickets, now)
        self._forwarder.send(working(split.free, self._bundle_max))
        for tier, held in split.again.items():
            self._forwarder.send(circling(held, tier))
        self._receipts.forwarded(split.repeats)
        return len(split.free)


async def serve(settings: DispatcherSettings, stop: asyncio.Event) -> None:
    async with (
        open_parts(settings, "dispatcher", stop) as parts,
        asyncio.TaskGroup() as tasks,
    ):
        breakers = Breakers(_rule(settings), automatic=settings.breaker == "auto")
        gates = Gates(breakers)
        hearing = Hearing(parts, breakers, gates)
        dispatcher = Dispatcher(
            parts.publisher,
            parts.clock,
            bundle_max=settings.bundle_max,
            tasks=tasks,
            stop=stop,
            gates=gates,
        )
        consumer = Consumer(
            DISPATCHER.name,
            parts.connect,
            lambda: Concurrent(dispatcher.handle, parts.settler),
            prefetch=PREFETCH,
        )
        parts.health.check("consuming", lambda: consumer.is_consuming)

        async def consume() -> None:
            await hearing.first_word(settings.breaker_patience.total_seconds())
            await consumer.run(stop)

        await run_until(
            stop,
            consuming=[consume()],
            background=[parts.keep(), hearing.run(), dispatcher.run()],
        )


def _rule(settings: DispatcherSettings) -> Rule:
    return Rule(
        window=settings.breaker_window,
        attempts=settings.breaker_attempts,
        ratio=settings.breaker_ratio,
        rest=settings.breaker_rest,
        probes=settings.breaker_probes,
    )
