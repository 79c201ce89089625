"""A process of the simulation: what it asks of broker or database may fail around the asking."""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, fields
from random import Random
from typing import Any, Final, TypeAlias

import asyncpg
from tests.memory.pool import Effect
from tests.simulation.loop import Stoppable

from harebell.contract.errors import BrokerUnavailable

QUICK: Final = 0.003  # seconds at most that asking takes, and the answer
SLOW: Final = 4.0  # likewise when it is slow

Trace: TypeAlias = Callable[[str], None]


@dataclass
class Faults:
    """How often each happens at one asking; all none when faults have stopped."""

    refused: float = 0.0  # it fails, without effect
    unanswered: float = 0.0  # it fails, with its effect
    slow: float = 0.0
    crashed: float = 0.0  # the process dies, before or after the effect
    frozen: float = 0.0  # the process stands still, before or after the effect

    def stop(self) -> None:
        for each in fields(self):
            setattr(self, each.name, 0.0)


class Over(asyncio.CancelledError):
    """The simulation has ended; nothing has an effect any more."""


class Process(Stoppable):
    """One life of a service. `crash` and `freeze` are the world's to carry out."""

    def __init__(
        self,
        name: str,
        dice: Random,
        faults: Faults,
        trace: Trace,
        *,
        crash: Callable[[], None],
        freeze: Callable[[], None],
    ) -> None:
        super().__init__()
        self.name = name
        self.is_over = False
        self._dice = dice
        self._faults = faults
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
        await self._pass(f"before {what}")
        if self._dice.random() < self._faults.refused:
            self._trace(f"{self.name}: {what} refused")
            raise failure("refused")
        answer = await effect()
        await self._pass(f"after {what}")
        if self._dice.random() < self._faults.unanswered:
            self._trace(f"{self.name}: {what} unanswered")
            raise failure("unanswered")
        return answer

    async def _pass(self, where: str) -> None:
        faults, dice = self._faults, self._dice.random()
        if dice < faults.crashed:
            self._trace(f"{self.name}: crashed {where}")
            self._crash()
        elif dice < faults.crashed + faults.frozen:
            self._trace(f"{self.name}: frozen {where}")
            self._freeze()
        is_slow = self._dice.random() < faults.slow
        await asyncio.sleep(self._dice.uniform(0, SLOW if is_slow else QUICK))
        if self.is_over:
            raise Over


def _gist(statement: str) -> str:
    return " ".join(statement.split())[:40]
