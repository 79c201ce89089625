"""Declaration of the topology at each connection, after a loss and at regular intervals."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import KW_ONLY, dataclass, field
from typing import Final, TypeAlias

import structlog
from aio_pika.abc import AbstractConnection

from harebell.connection.amqp import close, translate_amqp_errors
from harebell.contract.errors import InvalidInput, Transient, Unroutable
from harebell.messaging.declare import declare, find_missing
from harebell.messaging.topology.declarations import Topology
from harebell.runtime.clock import monotonic
from harebell.runtime.event_wait import wait_until_set

# Connections that open together declare the topology once.
MIN_DECLARE_INTERVAL: Final = 2.0  # seconds
# A queue that is declared again within about 30 ms of its deletion keeps its old consumers and
# delivers no message to them. The broker must cancel these consumers before the declaration.
CONSUMER_CANCEL_TIME: Final = 1.0  # seconds
# No publisher notices the loss of a binding of a dead letter exchange.
REDECLARE_INTERVAL: Final = 30.0  # seconds

Connect: TypeAlias = Callable[[], Awaitable[AbstractConnection]]

log = structlog.get_logger()


@dataclass(slots=True)
class TopologyKeeper:
    """The keeper of the topology of one service.

    A keeper without `declares` only checks at each connection that the topology exists.
    """

    topology: Topology
    _: KW_ONLY
    declares: bool
    _broken: asyncio.Event = field(default_factory=asyncio.Event)
    _declaring: asyncio.Lock = field(default_factory=asyncio.Lock)
    _declared_at: float = float("-inf")

    @property
    def is_broken(self) -> bool:
        """Return whether a publish missed a part of the topology since its last declaration."""
        return self._broken.is_set()

    async def ensure(self, connection: AbstractConnection) -> None:
        """Declare or check the topology, at most once in `MIN_DECLARE_INTERVAL`.

        Raise `BrokerUnavailable`, or `InvalidInput` if a check finds a missing part.
        """
        async with self._declaring:
            if monotonic() - self._declared_at > MIN_DECLARE_INTERVAL:
                await self._declare_or_check(connection)
                self._declared_at = monotonic()

    def on_unroutable(self, exchange: str, routing_key: str, error: Unroutable) -> None:
        """Mark the topology as broken if it should have routed the message.

        Events without a consumer and pools without an executor are no loss.
        """
        if error.code == Unroutable.code:
            is_loss = self.topology.carries(exchange, routing_key)
        else:
            is_loss = any(each.name == exchange for each in self.topology.exchanges)
        if is_loss and not self.is_broken:
            log.warning("topology broken", exchange=exchange, key=routing_key, reason=error.reason)
            self._broken.set()

    async def run(self, connect: Connect) -> None:
        """Declare the topology after each loss and each interval until the task is cancelled.

        `connect` must call `ensure` with its new connection.
        A keeper without `declares` returns at once.
        """
        while self.declares:
            await wait_until_set(self._broken, REDECLARE_INTERVAL)
            await asyncio.sleep(CONSUMER_CANCEL_TIME)
            await self._declare_again(connect)
            await asyncio.sleep(MIN_DECLARE_INTERVAL)  # a repeated loss must not cause a busy loop

    async def _declare_again(self, connect: Connect) -> None:
        """Declare the topology. A failure after a loss leaves the topology broken."""
        is_repair = self.is_broken
        self._broken.clear()  # a loss during the declaration needs a further one
        if is_repair:
            self._declared_at = float("-inf")
        try:
            with translate_amqp_errors("The topology cannot be declared"):
                await close(await connect())
        except Transient:
            if is_repair:
                self._broken.set()

    async def _declare_or_check(self, connection: AbstractConnection) -> None:
        if self.declares:
            await declare(connection, self.topology)
        elif errors := await find_missing(connection, self.topology):
            reason = (
                "The broker must have the complete topology. Import the definitions file, or set "
                "the mode declare on a broker for development. The broker answers: "
                f"{'; '.join(errors)}"
            )
            raise InvalidInput(reason, field="HAREBELL_TOPOLOGY_MODE", code="topology")
