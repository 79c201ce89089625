"""A process of the simulation: what it asks of broker or database may fail around the asking."""

import asyncio
from collections.abc import Callable, Coroutine
from functools import lru_cache
from typing import Any, Final, TypeAlias

import asyncpg
from tests.fakes.ledger.pool import Effect
from tests.simulation.fault_rates import Odds
from tests.simulation.loop import Stoppable

from harebell.contract.errors import BrokerUnavailable

QUICK: Final = 0.003  # seconds at most that asking takes, and the answer
SLOW: Final = 4.0  # likewise when it is slow

Trace: TypeAlias = Callable[[str], None]


class Over(asyncio.CancelledError):
    """The simulation has ended; nothing has an effect any more."""


class Process(Stoppable):
    """One life of a service. `crash` and `freeze` are the world's to carry out."""

    def __init__(
        self,
        name: str,
        odds: Odds,
        trace: Trace,
        *,
        crash: Callable[[], None],
        freeze: Callable[[], None],
    ) -> None:
        super().__init__()
        self.name = name
        self.is_over = False
        self._odds = odds
        self._trace = trace
        self._crash = crash
        self._freeze = freeze

    def start(self, main: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        return asyncio.get_running_loop().create_task(main, context=self.context)

    async def database(self, statement: str, effect: Effect) -> Any:
        return await self._ask(_gist(statement), effect, asyncpg.ConnectionDoesNotExistError)

    async def broker(self, what: str, effect: Effect) -> Any:
        return await self._ask(what, effect, BrokerUnavailable)

    async def _ask(self, what: str, effect: Effect, failure: Callable[[str], Exception]) -> Any:
        """On its way there, and on its way back, anything may happen."""
        self._odds.happened["asked"] += 1
        await self._pass("before", what)
        if self._odds.strike("refused"):
            self._trace(f"{self.name}: {what} refused")
            raise failure("refused")
        answer = await effect()
        await self._pass("after", what)
        if self._odds.strike("unanswered"):
            self._trace(f"{self.name}: {what} unanswered")
            raise failure("unanswered")
        return answer

    async def _pass(self, side: str, what: str) -> None:
        if self._odds.strike("crashed"):
            self._trace(f"{self.name}: crashed {side} {what}")
            self._crash()
        elif self._odds.strike("frozen"):
            self._trace(f"{self.name}: frozen {side} {what}")
            self._freeze()
        longest = SLOW if self._odds.strike("slow") else QUICK
        await asyncio.sleep(self._odds.dice.uniform(0, longest))
        if self.is_over:
            raise Over


@lru_cache(1024)  # statements are constants
def _gist(statement: str) -> str:
    return " ".join(statement.split())[:40]
