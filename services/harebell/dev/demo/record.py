"""The ledger as the demo reads it: through the client's queries, like anyone's."""

import asyncio
from collections.abc import Callable, Sequence
from time import monotonic
from typing import TypeAlias

from harebell.client import Client
from harebell.dev.demo.evidence import LedgerRun
from harebell.dev.demo.scenes import DemoSchedule

LOOK_S = 0.3  # between two looks at the ledger


Runs: TypeAlias = Sequence[LedgerRun]


class LedgerReader:
    """What the ledger says of the demo's own schedules."""

    def __init__(self, harebell: Client, cast: Sequence[DemoSchedule]) -> None:
        self._harebell = harebell
        self._cast = cast

    async def follow(
        self,
        until: Callable[[Runs], bool],
        *,
        limit: float,
        show: Callable[[Runs], None] = lambda _: None,
    ) -> bool:
        """Look again and again; False when `limit` seconds were not enough."""
        deadline = monotonic() + limit
        while True:
            runs = await self.runs()
            show(runs)
            if until(runs):
                return True
            if monotonic() > deadline:
                return False
            await asyncio.sleep(LOOK_S)

    async def runs(self) -> list[LedgerRun]:
        """Soonest due first."""
        of_each = await asyncio.gather(*(self._runs_of(scene.key) for scene in self._cast))
        return sorted((run for runs in of_each for run in runs), key=lambda run: run.due_at)

    async def attempts(self) -> dict[LedgerRun, int]:
        """Every run, and how often it was tried in all its series."""
        return {run: await self._tried(run) for run in await self.runs()}

    async def _tried(self, run: LedgerRun) -> int:
        return len((await self._harebell.run(run.run_id))["attempts"])

    async def _runs_of(self, key: str) -> list[LedgerRun]:
        return [LedgerRun.of(view) async for view in self._harebell.runs(key=key)]
