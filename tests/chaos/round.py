"""One wave: a load, one fault in the midst of it, healing, quiet, and the verdict."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path
from random import Random
from typing import Final

import asyncpg
from tests.acceptance.stack import now
from tests.chaos.checker import judge
from tests.chaos.environment import Scene
from tests.chaos.faults import Fault
from tests.chaos.generators import Drawing, Script
from tests.chaos.history import History, Operation, Outage
from tests.chaos.load import ASKED, Load
from tests.chaos.result import Finding, Kind, Verdict

from harebell.audit.audit import Scope, run_audit
from harebell.audit.store import connect_read_only
from harebell.client import Client

LOAD: Final = 8.0  # seconds of commands, beside the outage
BEYOND: Final = 3.0  # seconds that instants may lie beyond the last command
EARLIEST, LATEST = 2.5, 5.0  # seconds after the beginning that a fault strikes
PATIENCE: Final = 90.0  # seconds for an answer, whatever is down meanwhile
QUIET: Final = 90.0  # seconds after healing and load until the judge looks, quiet or not
LOOK: Final = 0.5  # seconds between two looks whether it is quiet
ROUNDS: Final = 4  # schedules of each kind

# Nothing runs, nothing will: but for schedules that a person must resume.
_UNQUIET: Final = """
SELECT (SELECT count(*) FROM runs WHERE tenant = $1 AND finished_at IS NULL AND state <> 'held')
     + (SELECT count(*) FROM schedule_state AS s JOIN schedules AS d ON d.id = s.schedule_id
        WHERE d.tenant = $1 AND s.state = 'active')
"""


@dataclass(frozen=True)
class Wave:
    """What can be played again: the same seed and fault make the same load at the same moments."""

    seed: int
    fault: Fault

    @property
    def name(self) -> str:
        return f"seed-{self.seed}-row-{self.fault.row}"

    async def play(self, scene: Scene, folder: Path) -> tuple[Verdict, History]:
        """The stack is ready when it begins, and when it is over. The folder is there."""
        dice = Random(self.name)  # noqa: S311  # to be repeated, not to be secret
        scene.dice, scene.tenant, scene.notes, scene.findings = dice, self.name, {}, []
        began = whole(now())
        span = self.span(scene.outage)
        script = self.script(Drawing(dice, scene.target, self.name, began, span))
        async with Client.connect(
            scene.stack.amqp_url, tenant=self.name, timeout=PATIENCE / ASKED
        ) as harebell:
            load = Load(harebell, scene.target, folder / "journal.jsonl")
            playing = asyncio.create_task(load.play(script, began))
            await asyncio.sleep(dice.uniform(EARLIEST, LATEST))
            outages = await self.strikes(scene, began)
            async with supervised(scene):
                await playing
                await asyncio.sleep((began - now()).total_seconds() + span + BEYOND)
                await self._until_quiet(scene, healed_at=outages[-1].healed_at)
        await scene.until_ready()
        history = await self._history(scene, load.operations, outages)
        verdict = judge(history)
        found = (*verdict.findings, *scene.findings, *await self._audited(scene, began))
        return replace(verdict, findings=found, notes=scene.notes), history

    def span(self, outage: float) -> float:
        """Seconds of commands."""
        return LOAD + outage

    def script(self, drawing: Drawing) -> Script:
        return drawing.script(ROUNDS)

    async def strikes(self, scene: Scene, began: datetime) -> list[Outage]:  # noqa: ARG002
        """In the order in which they healed; nothing is supervised between."""
        return [await struck(scene, self.fault)]

    async def _until_quiet(self, scene: Scene, *, healed_at: datetime) -> None:
        """Or until that takes too long, which the judge will see."""
        deadline = max(now(), healed_at) + timedelta(seconds=QUIET)
        unquiet = 1
        while unquiet and now() < deadline:
            await asyncio.sleep(LOOK)
            try:
                unquiet = await self._unquiet(scene)
            except (OSError, asyncpg.PostgresError):
                continue
        scene.notes["quiet"] = max(0.0, (now() - healed_at).total_seconds())

    async def _unquiet(self, scene: Scene) -> int:
        ledger = await asyncpg.connect(scene.stack.database_url)
        try:
            count: int = await ledger.fetchval(_UNQUIET, self.name)
        finally:
            await ledger.close()
        return count

    async def _audited(self, scene: Scene, began: datetime) -> list[Finding]:
        """What the product's own audit says of the rows. How late runs were is judged elsewhere."""
        async with connect_read_only(scene.stack.database_url) as ledger:
            scope = Scope(tenant=self.name)
            report = await run_audit(ledger, began, scope=scope, late_after=timedelta(hours=1))
        return [
            Finding(Kind.RECORD, each.key or "", f"audit: {each.kind}, {each.at}: {each.text}")
            for each in report.findings
        ]

    async def _history(
        self, scene: Scene, operations: list[Operation], outages: Sequence[Outage]
    ) -> History:
        ledger = await asyncpg.connect(scene.stack.database_url)
        try:
            runs = await ledger.fetch("SELECT * FROM runs WHERE tenant = $1", self.name)
            attempts = await ledger.fetch(
                "SELECT a.* FROM attempts AS a JOIN schedules AS d ON d.id = a.schedule_id "
                "WHERE d.tenant = $1 ORDER BY a.replay_number, a.number",
                self.name,
            )
        finally:
            await ledger.close()
        calls = scene.target.calls(self.name)
        return History(operations, calls, runs, attempts, outages, now())


async def struck(scene: Scene, fault: Fault) -> Outage:
    struck_at = now()
    async with fault.strike(scene):
        await asyncio.sleep(scene.outage)
    recovery = timedelta(seconds=fault.recovery)
    pause = None if fault.pause is None else timedelta(seconds=fault.pause)
    return Outage(fault.row, struck_at, now(), fault.lapses, recovery, pause)


@asynccontextmanager
async def supervised(scene: Scene) -> AsyncIterator[None]:
    """What has ended is started again; how often that was is told."""

    async def supervise() -> None:
        while True:
            restarted = await scene.restart_dead()
            scene.notes["died"] = scene.notes.get("died", 0) + restarted
            await asyncio.sleep(LOOK)

    supervising = asyncio.create_task(supervise())
    try:
        yield
    finally:
        supervising.cancel()
        await asyncio.gather(supervising, return_exceptions=True)


def whole(moment: datetime) -> datetime:
    """As instants of runs are: of whole milliseconds."""
    return moment.replace(microsecond=moment.microsecond // 1000 * 1000)
