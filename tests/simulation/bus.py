"""A broker in memory: the declared topology, with queues that fail as real queues do."""

import asyncio
import re
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from contextvars import copy_context
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, Final

from tests.simulation.fault_rates import FaultRates
from tests.simulation.loop import StoppableProcess

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

MAX_LATENCY: Final = 0.004  # seconds of a delivery
MAX_LATE_LATENCY: Final = 3.0  # seconds of a late delivery, which later messages overtake
UNREAD: Final = {EVENTS_RECENT.name, ALERT.name, DEAD_RECENT.name}
# These queues lose nothing, because no service publishes their messages again.
DURABLE: Final = {INTAKE.name, TICKER.name, DLQ.name, DEAD_LETTERS.name}


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One AMQP message with its address."""

    exchange: str
    routing_key: str
    body: bytes
    message_id: str | None = None
    type: str | None = None
    reply_to: str | None = None
    correlation_id: str | None = None


@dataclass(eq=False, kw_only=True)
class Subscription:
    """A consumer of one session. `deliver` runs in the process of the session."""

    process: StoppableProcess
    deliver: Callable[["PendingDelivery"], Awaitable[Any]]
    prefetch: float
    no_ack: bool
    unacked: dict["PendingDelivery", None] = field(default_factory=dict)


@dataclass(eq=False)
class PendingDelivery:
    """A message at its consumer, until the consumer acknowledges it."""

    message: Message
    queue: "BrokerQueue"
    subscription: Subscription


@dataclass(eq=False)
class BrokerQueue:
    """A queue with its ready messages and its consumers."""

    declared: Queue
    ready: deque[Message] = field(default_factory=deque)
    subscriptions: list[Subscription] = field(default_factory=list)

    def next_subscription(self) -> Subscription | None:
        is_single = self.declared.single_active_consumer
        active = self.subscriptions[:1] if is_single else self.subscriptions
        free = [each for each in active if len(each.unacked) < each.prefetch]
        return min(free, key=lambda each: len(each.unacked), default=None)


class FakeBroker:
    """The broker of a scenario. `on_publish` receives every published message."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        faults: FaultRates,
        on_publish: Callable[[Message], None],
    ) -> None:
        self._loop = loop
        self._context = copy_context()  # of no process, because messages outlive their publisher
        self._faults = faults
        self.queues = {queue.name: BrokerQueue(queue) for queue in SYSTEM.queues}
        self._bindings = [(b.exchange, b.routing_key, b.queue) for b in SYSTEM.bindings]
        self.reply_handlers: dict[str, Callable[[bytes], None]] = {}  # by reply queue
        self._on_publish = on_publish

    # The requests of clients

    def publish(self, message: Message) -> bool:
        """Route the message, and return whether any queue is bound."""
        self._on_publish(message)
        if message.exchange == DEFAULT_EXCHANGE:
            return self._reply(message)
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
        self.queues[name] = BrokerQueue(Queue(name))

    def bind(self, queue: str, exchange: str, routing_key: str) -> None:
        self._bindings.append((exchange, routing_key, queue))

    def consume(self, name: str, subscription: Subscription) -> None:
        self.queues[name].subscriptions.append(subscription)
        self._deliver_ready(self.queues[name])

    def cancel(self, name: str, subscription: Subscription) -> None:
        if subscription in self.queues[name].subscriptions:
            self.queues[name].subscriptions.remove(subscription)

    def acknowledge(self, delivery: PendingDelivery) -> bool:
        """Return False if the broker has delivered the message again since."""
        if delivery not in delivery.subscription.unacked:
            return False
        del delivery.subscription.unacked[delivery]
        self._deliver_ready(delivery.queue)
        return True

    def close_connection(
        self, subscriptions: Sequence[tuple[str, Subscription]], exclusive: Sequence[str]
    ) -> None:
        """Return the unacknowledged messages to the heads of their queues."""
        for name, subscription in subscriptions:
            self.cancel(name, subscription)
            returned = [delivery.message for delivery in subscription.unacked]
            subscription.unacked.clear()
            self.queues[name].ready.extendleft(reversed(returned))
            self._deliver_ready(self.queues[name])
        for name in exclusive:
            self.queues.pop(name, None)
            self._bindings = [each for each in self._bindings if each[2] != name]

    def purge(self, name: str) -> int:
        lost = len(self.queues[name].ready)
        self.queues[name].ready.clear()
        return lost

    # The work of queues

    def _reply(self, message: Message) -> bool:
        handler = self.reply_handlers.get(message.routing_key)
        if handler is not None:
            latency = self._faults.random.uniform(0, MAX_LATENCY)
            self._call_later(latency, handler, message.body)
        return handler is not None

    def _put(self, queue: BrokerQueue, message: Message) -> None:
        occurs = self._faults.occurs
        if queue.declared.name not in DURABLE and occurs("lost"):
            return
        copies = 2 if occurs("duplicated") else 1
        for _ in range(copies):
            max_latency = MAX_LATE_LATENCY if occurs("late") else MAX_LATENCY
            wait = self._faults.random.uniform(0, max_latency)
            if (ttl := queue.declared.ttl_ms) is not None:
                expired = replace(message, exchange=queue.declared.dead_letter_exchange or "")
                self._call_later(wait + ttl / 1000, self.publish, expired)
            else:
                self._call_later(wait, self._append, queue, message)

    def _call_later(self, seconds: float, callback: Callable[..., object], *args: Any) -> None:
        self._loop.call_later(seconds, callback, *args, context=self._context)

    def _append(self, queue: BrokerQueue, message: Message) -> None:
        queue.ready.append(message)
        self._deliver_ready(queue)

    def _deliver_ready(self, queue: BrokerQueue) -> None:
        while queue.ready and (subscription := queue.next_subscription()) is not None:
            delivery = PendingDelivery(queue.ready.popleft(), queue, subscription)
            if not subscription.no_ack:
                subscription.unacked[delivery] = None
            context = subscription.process.context.copy()
            self._loop.call_soon(self._start_delivery, delivery, context=context)

    def _start_delivery(self, delivery: PendingDelivery) -> None:
        self._loop.create_task(_deliver(delivery))


async def _deliver(delivery: PendingDelivery) -> None:
    await delivery.subscription.deliver(delivery)


@lru_cache(4096)
def _matches(pattern: str, routing_key: str) -> bool:
    """Match as a topic exchange does. The keys of a direct exchange have no wildcards."""
    words = {"#": r".*", "*": r"[^.]+"}
    expression = r"\.".join(words.get(word, re.escape(word)) for word in pattern.split("."))
    return re.fullmatch(expression, routing_key) is not None
