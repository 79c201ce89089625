"""Types of exchanges, queues, bindings and topologies. Pure."""

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from enum import StrEnum
from typing import Final

# Each loss of a consumer costs its unacknowledged messages one delivery.
DELIVERY_LIMIT: Final = 50  # deliveries of one message
# The value -1 means "unlimited" only since RabbitMQ 4. Up to 3.10 it drops a returned message.
UNLIMITED: Final = 2**31 - 1  # deliveries


class ExchangeKind(StrEnum):
    """The type of an exchange."""

    DIRECT = "direct"
    TOPIC = "topic"
    FANOUT = "fanout"
    HEADERS = "headers"


@dataclass(frozen=True, slots=True)
class Exchange:
    """A durable exchange of one of the four types.

    `alternate` names the exchange that receives the messages without a binding.
    """

    name: str
    kind: ExchangeKind
    alternate: str | None = None

    def arguments(self) -> dict[str, str]:
        """Return the arguments of the declaration."""
        return {} if self.alternate is None else {"alternate-exchange": self.alternate}


@dataclass(frozen=True, slots=True)
class Queue:
    """A durable quorum queue. `arguments` are necessary for correctness, policies are for tuning.

    Any other type disappears with its node: then no service can declare the topology or publish to
    what the queue is bound to.
    """

    name: str
    _: KW_ONLY
    dead_letter_exchange: str | None = None
    ttl_ms: int | None = None
    delivery_limit: int | None = DELIVERY_LIMIT
    single_active_consumer: bool = False
    max_length: int | None = None
    rejects_when_full: bool = False  # as a queue with a dead letter exchange does

    def arguments(self) -> dict[str, str | int | bool]:
        """Return the `x-` arguments of the declaration."""
        arguments: dict[str, str | int | bool] = {"x-queue-type": "quorum"}
        if self.delivery_limit is not None:
            arguments["x-delivery-limit"] = self.delivery_limit
        if self.dead_letter_exchange is not None:
            arguments["x-dead-letter-exchange"] = self.dead_letter_exchange
            # The other strategy loses confirmed messages when a broker is killed.
            arguments["x-dead-letter-strategy"] = "at-least-once"
        if self.dead_letter_exchange is not None or self.rejects_when_full:
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
    """A binding of a queue to an exchange."""

    exchange: str
    routing_key: str
    queue: str


@dataclass(frozen=True, slots=True)
class Topology:
    """Exchanges, queues and bindings. The sum of two topologies contains both.

    Queues are declared in their order, so a delay queue follows the queues that it forwards to.
    """

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
        """Return whether a binding routes the message to a queue."""
        return any(
            binding.exchange == exchange and matches(binding.routing_key, routing_key)
            for binding in self.bindings
        )


def matches(pattern: str, routing_key: str) -> bool:
    """Return whether a topic exchange routes the key by the pattern.

    A pattern without wildcards matches only itself, as in a direct exchange.
    """
    return _matches(pattern.split("."), routing_key.split("."))


def _matches(pattern: Sequence[str], words: Sequence[str]) -> bool:
    if not pattern:
        return not words
    word, *rest = pattern
    if word == "#":
        return any(_matches(rest, words[skipped:]) for skipped in range(len(words) + 1))
    return bool(words) and word in ("*", words[0]) and _matches(rest, words[1:])
