"""A broker in memory: the declared topology as it stands, with queues that fail as real ones do."""

import asyncio
import re
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from contextvars import copy_context
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, Final

from tests.simulation.fault_rates import Odds
from tests.simulation.loop import Stoppable

from harebell.messaging.replies import DEFAULT_EXCHANGE
from harebell.messaging.topology.bus import (
    ALERT,
    DEAD_LETTERS,
    DEAD_RECENT,
    DLQ,
    EVENTS_RECENT,
    INTAKE,
    SYSTEM,
    TICKER,
)
from harebell.messaging.topology.declarations import Queue

QUICK: Final = 0.004  # seconds at most that a delivery takes
SLOW: Final = 3.0  # seconds that one takes when it is late, so that later ones overtake it
UNREAD: Final = {EVENTS_RECENT.name, ALERT.name, DEAD_RECENT.name}
# Commands, changes and dead letters are no hints: nobody would make them again.
LASTING: Final = {INTAKE.name, TICKER.name, DLQ.name, DEAD_LETTERS.name}


@dataclass(frozen=True, slots=True)
class Message:
    exchange: str
    routing_key: str
    body: bytes
    message_id: str | None = None
    type: str | None = None
    reply_to: str | None = None
    correlation_id: str | None = None


@dataclass(eq=False)
class Consumer:
    """A session's hold on a queue. `deliver` is run in its process."""

    process: Stoppable
    deliver: Callable[["Delivered"], Awaitable[Any]]
    prefetch: float
    no_ack: bool
    unacked: dict["Delivered", None] = field(default_factory=dict)


@dataclass(eq=False)
class Delivered:
    """A message at its consumer, until it is acknowledged."""

    message: Message
    queue: "Waiting"
    consumer: Consumer


@dataclass(eq=False)
class Waiting:
    """A queue: what is ready, and who reads it."""

    declared: Queue
    ready: deque[Message] = field(default_factory=deque)
    consumers: list[Consumer] = field(default_factory=list)

    def reader(self) -> Consumer | None:
        readers = self.consumers[:1] if self.declared.single_active_consumer else self.consumers
        free = [each for each in readers if len(each.unacked) < each.prefetch]
        return min(free, key=lambda each: len(each.unacked), default=None)


class Broker:
    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        odds: Odds,
        told: Callable[[Message], None],
    ) -> None:
        self._loop = loop
        self._context = copy_context()  # no process's: what is published outlives who published it
        self._odds = odds
        self.queues = {queue.name: Waiting(queue) for queue in SYSTEM.queues}
        self._bindings = [(b.exchange, b.routing_key, b.queue) for b in SYSTEM.bindings]
        self.hear: dict[str, Callable[[bytes], None]] = {}  # who waits for answers, by queue
        self._told = told  # of every message that is published

    # what clients ask

    def publish(self, message: Message) -> bool:
        """False: no queue is bound."""
        self._told(message)
        if message.exchange == DEFAULT_EXCHANGE:
            return self._answer(message)
        names = [
            name
            for exchange, pattern, name in self._bindings
            if exchange == message.exchange and _matches(pattern, message.routing_key)
        ]
        for name in names:
            if name not in UNREAD:
                self._put(self.queues[name], message)
        return bool(names)

    def declare(self, name: str) -> None:
        self.queues[name] = Waiting(Queue(name))

    def bind(self, queue: str, exchange: str, routing_key: str) -> None:
        self._bindings.append((exchange, routing_key, queue))

    def consume(self, name: str, consumer: Consumer) -> None:
        self.queues[name].consumers.append(consumer)
        self._pump(self.queues[name])

    def cancel(self, name: str, consumer: Consumer) -> None:
        if consumer in self.queues[name].consumers:
            self.queues[name].consumers.remove(consumer)

    def acknowledge(self, delivered: Delivered) -> bool:
        """False: it has been given to others meanwhile."""
        if delivered not in delivered.consumer.unacked:
            return False
        del delivered.consumer.unacked[delivered]
        self._pump(delivered.queue)
        return True

    def leave(self, consumers: Sequence[tuple[str, Consumer]], own: Sequence[str]) -> None:
        """A connection is gone: what it had not acknowledged comes again, first."""
        for name, consumer in consumers:
            self.cancel(name, consumer)
            again = [delivered.message for delivered in consumer.unacked]
            consumer.unacked.clear()
            self.queues[name].ready.extendleft(reversed(again))
            self._pump(self.queues[name])
        for name in own:
            self.queues.pop(name, None)
            self._bindings = [each for each in self._bindings if each[2] != name]

    def purge(self, name: str) -> int:
        lost = len(self.queues[name].ready)
        self.queues[name].ready.clear()
        return lost

    # what queues do

    def _answer(self, message: Message) -> bool:
        hear = self.hear.get(message.routing_key)
        if hear is not None:
            self._later(self._odds.dice.uniform(0, QUICK), hear, message.body)
        return hear is not None

    def _put(self, queue: Waiting, message: Message) -> None:
        strike = self._odds.strike
        if queue.declared.name not in LASTING and strike("lost"):
            return
        copies = 2 if strike("doubled") else 1
        for _ in range(copies):
            wait = self._odds.dice.uniform(0, SLOW if strike("late") else QUICK)
            if (ttl := queue.declared.ttl_ms) is not None:
                on = replace(message, exchange=queue.declared.dead_letter_exchange or "")
                self._later(wait + ttl / 1000, self.publish, on)
            else:
                self._later(wait, self._arrive, queue, message)

    def _later(self, seconds: float, callback: Callable[..., object], *args: Any) -> None:
        self._loop.call_later(seconds, callback, *args, context=self._context)

    def _arrive(self, queue: Waiting, message: Message) -> None:
        queue.ready.append(message)
        self._pump(queue)

    def _pump(self, queue: Waiting) -> None:
        while queue.ready and (consumer := queue.reader()) is not None:
            delivered = Delivered(queue.ready.popleft(), queue, consumer)
            if not consumer.no_ack:
                consumer.unacked[delivered] = None
            self._loop.call_soon(
                self._hand_over, consumer, delivered, context=consumer.process.context.copy()
            )

    def _hand_over(self, consumer: Consumer, delivered: Delivered) -> None:
        self._loop.create_task(_call(consumer, delivered))


async def _call(consumer: Consumer, delivered: Delivered) -> None:
    await consumer.deliver(delivered)


@lru_cache(4096)
def _matches(pattern: str, routing_key: str) -> bool:
    """As a topic exchange does; a direct one's keys have no wildcards."""
    words = {"#": r".*", "*": r"[^.]+"}
    expression = r"\.".join(words.get(word, re.escape(word)) for word in pattern.split("."))
    return re.fullmatch(expression, routing_key) is not None
