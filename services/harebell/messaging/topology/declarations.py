"""Exchanges, queues and bindings as values: what is declared, and what it means."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

DELIVERY_LIMIT: Final = 50  # deliveries of one message; a restart of its consumer costs one
# Deliveries. -1 means so only since RabbitMQ 4: to 3.10 the first delivery is one too many, and
# a message that comes back is dropped.
UNLIMITED: Final = 2**31 - 1


class ExchangeKind(StrEnum):
    DIRECT = "direct"
    TOPIC = "topic"


@dataclass(frozen=True, slots=True)
class Exchange:
    name: str
    kind: ExchangeKind


@dataclass(frozen=True, slots=True)
class Queue:
    """Durable. What correctness needs is an argument here; what operators tune is a policy.

    Quorum, copies for people too: a queue of any other type is gone with its node, and then nobody
    can declare the topology, nor publish to what is bound to it.
    """

    name: str
    dead_letter_exchange: str | None = None
    ttl_ms: int | None = None
    delivery_limit: int | None = DELIVERY_LIMIT
    single_active_consumer: bool = False
    max_length: int | None = None

    def arguments(self) -> dict[str, str | int | bool]:
        """The `x-` arguments of the declaration."""
        arguments: dict[str, str | int | bool] = {"x-queue-type": "quorum"}
        if self.delivery_limit is not None:
            arguments["x-delivery-limit"] = self.delivery_limit
        if self.dead_letter_exchange is not None:
            arguments["x-dead-letter-exchange"] = self.dead_letter_exchange
            # any other way of dead-lettering loses confirmed messages with a killed broker
            arguments["x-dead-letter-strategy"] = "at-least-once"
            arguments["x-overflow"] = "reject-publish"
        if self.ttl_ms is not None:
            arguments["x-message-ttl"] = self.ttl_ms
        if self.single_active_consumer:
            arguments["x-single-active-consumer"] = True
        if self.max_length is not None:
            arguments["x-max-length"] = self.max_length
        return arguments


@dataclass(frozen=True, slots=True)
class Binding:
    exchange: str
    routing_key: str
    queue: str


@dataclass(frozen=True, slots=True)
class Topology:
    """`a + b` is both. The order of queues is the order of declaring: targets before tiers."""

    exchanges: tuple[Exchange, ...] = ()
    queues: tuple[Queue, ...] = ()
    bindings: tuple[Binding, ...] = ()

    def __add__(self, other: "Topology") -> "Topology":
        return Topology(
            self.exchanges + other.exchanges,
            self.queues + other.queues,
            self.bindings + other.bindings,
        )

    def carries(self, exchange: str, routing_key: str) -> bool:
        """Whether one of its bindings takes it to a queue."""
        return any(
            binding.exchange == exchange and matches(binding.routing_key, routing_key)
            for binding in self.bindings
        )


def matches(pattern: str, routing_key: str) -> bool:
    """As topic exchanges do; what has no wildcard matches itself, as in direct ones."""
    return _matches(pattern.split("."), routing_key.split("."))


def _matches(pattern: Sequence[str], words: Sequence[str]) -> bool:
    if not pattern:
        return not words
    word, *rest = pattern
    if word == "#":
        return any(_matches(rest, words[skipped:]) for skipped in range(len(words) + 1))
    return bool(words) and word in ("*", words[0]) and _matches(rest, words[1:])
