"""A process of the simulation, whose calls of broker and database may fail."""

import asyncio
from collections.abc import Callable, Coroutine
from functools import lru_cache
from typing import Any, Final, TypeAlias

import asyncpg
from tests.fakes.ledger.pool import Effect
from tests.simulation.fault_rates import FaultRates
from tests.simulation.loop import StoppableProcess

from harebell.contract.errors import BrokerUnavailable
from harebell.storage.runs.claims import STATEMENTS as CLAIM_STATEMENTS

MAX_LATENCY: Final = 0.003  # seconds of one direction of a call
MAX_SLOW_LATENCY: Final = 4.0  # seconds

Trace: TypeAlias = Callable[[str], None]


class SimulationEnded(asyncio.CancelledError):
    """The cancellation of a call after the end of the scenario, which has no effect."""


class Process(StoppableProcess):
    """One process of a service. The supervisor implements `crash` and `freeze`."""

    def __init__(
        self,
        name: str,
        faults: FaultRates,
        trace: Trace,
        *,
        crash: Callable[[], None],
        freeze: Callable[[], None],
    ) -> None:
        super().__init__()
        self.name = name
        self.is_over = False
        self._faults = faults
        self._trace = trace
        self._crash = crash
        self._freeze = freeze

    def start(self, main: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        return asyncio.get_running_loop().create_task(main, context=self.context)

    async def call_database(self, statement: str, effect: Effect) -> Any:
        error = asyncpg.ConnectionDoesNotExistError
        response = await self._call(_shorten(statement), effect, error)
        if statement == CLAIM_STATEMENTS.claim and self._faults.occurs("frozen_claim"):
            self._trace(f"{self.name}: frozen with its claims")
            self._freeze()
            await asyncio.sleep(0)
        return response

    async def call_broker(self, name: str, effect: Effect) -> Any:
        return await self._call(name, effect, BrokerUnavailable)

    async def _call(self, name: str, effect: Effect, error: Callable[[str], Exception]) -> Any:
        """Run the effect between a request and a response, both of which may fail."""
        self._faults.counts["calls"] += 1
        await self._pass("before", name)
        if self._faults.occurs("rejected"):
            self._trace(f"{self.name}: {name} rejected")
            raise error("rejected")
        response = await effect()
        await self._pass("after", name)
        if self._faults.occurs("unanswered"):
            self._trace(f"{self.name}: {name} unanswered")
            raise error("unanswered")
        return response

    async def _pass(self, side: str, name: str) -> None:
        if self._faults.occurs("crashed"):
            self._trace(f"{self.name}: crashed {side} {name}")
            self._crash()
        elif self._faults.occurs("frozen"):
            self._trace(f"{self.name}: frozen {side} {name}")
            self._freeze()
        max_latency = MAX_SLOW_LATENCY if self._faults.occurs("slow") else MAX_LATENCY
        await asyncio.sleep(self._faults.random.uniform(0, max_latency))
        if self.is_over:
            raise SimulationEnded


@lru_cache(1024)  # statements are constants
def _shorten(statement: str) -> str:
    return " ".join(statement.split())[:40]
