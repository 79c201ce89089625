"""The topology kept whole: at each connection, when a publish misses a part, and now and then."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final, TypeAlias

import structlog
from aio_pika.abc import AbstractConnection

from harebell.client.connection import close, translate_amqp_errors
from harebell.contract.errors import InvalidInput, Transient, Unroutable
from harebell.messaging.declare import declare, find_missing
from harebell.messaging.topology.declarations import Topology
from harebell.runtime.clock import monotonic

MIN_DECLARE_INTERVAL: Final = 2.0  # seconds; connections that open together declare once
# A queue that is made anew within about 30 ms of its deletion keeps the consumers of the old one,
# and shows them none of its messages: those must have been cancelled before.
CONSUMER_CANCEL_TIME: Final = 1.0  # seconds
REDECLARE_INTERVAL: Final = (
    30.0  # seconds; a binding behind a dead-lettering exchange is missed by nobody
)

Connect: TypeAlias = Callable[[], Awaitable[AbstractConnection]]

log = structlog.get_logger()


@dataclass(slots=True)
class TopologyKeeper:
    """Of what one service needs. Unless it `declares`, it only looks, when it connects."""

    topology: Topology
    declares: bool
    _missed: asyncio.Event = field(default_factory=asyncio.Event)
    _declaring: asyncio.Lock = field(default_factory=asyncio.Lock)
    _declared_at: float = float("-inf")

    @property
    def is_broken(self) -> bool:
        """Whether a part of it was missed, and it has not been declared again since."""
        return self._missed.is_set()

    async def ensure(self, connection: AbstractConnection) -> None:
        """Raises `BrokerUnavailable`, and `Malformed` where it may only look."""
        async with self._declaring:
            if monotonic() - self._declared_at > MIN_DECLARE_INTERVAL:
                await self._declare(connection)
                self._declared_at = monotonic()

    def on_unroutable(self, exchange: str, routing_key: str, error: Unroutable) -> None:
        """What nobody has bound is nobody's fault: of some events, of pools that are not there."""
        if error.code == Unroutable.code:
            is_ours = self.topology.carries(exchange, routing_key)
        else:
            is_ours = any(each.name == exchange for each in self.topology.exchanges)
        if is_ours and not self.is_broken:
            log.warning("topology broken", exchange=exchange, key=routing_key, reason=error.reason)
            self._missed.set()

    async def run(self, connect: Connect) -> None:
        """Until cancelled; `connect` is to ensure what it connects to."""
        while self.declares:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._missed.wait(), REDECLARE_INTERVAL)
            await asyncio.sleep(CONSUMER_CANCEL_TIME)
            self._missed.clear()
            with suppress(Transient), translate_amqp_errors("not declared again"):
                await close(await connect())
            await asyncio.sleep(MIN_DECLARE_INTERVAL)  # so often at most, whatever is missed

    async def _declare(self, connection: AbstractConnection) -> None:
        if self.declares:
            await declare(connection, self.topology)
        elif problems := await find_missing(connection, self.topology):
            raise InvalidInput("; ".join(problems), field="HAREBELL_TOPOLOGY_MODE", code="topology")
