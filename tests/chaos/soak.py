"""A soak: one long load, a fault every so often, each drawn and healed; judged once, at the end."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final

from tests.acceptance.stack import now
from tests.chaos.environment import Scene
from tests.chaos.faults import Fault
from tests.chaos.generators import Drawing, Script
from tests.chaos.history import Outage
from tests.chaos.result import Kind, say
from tests.chaos.round import Wave, struck, supervised

CHAPTER: Final = 15.0  # seconds of commands that are drawn together
ROUNDS: Final = 2  # schedules of each kind in a chapter


@dataclass(frozen=True)
class Soak(Wave):
    """`lasting` and `every` in seconds. `fault` names all of them; those that strike are drawn.

    How long one takes to heal decides when the next comes: no soak is played twice as it was.
    """

    faults: Sequence[Fault]
    lasting: float
    every: float

    @classmethod
    def of(cls, seed: int, faults: Sequence[Fault], lasting: float, every: float) -> "Soak":
        fit = [each for each in faults if each.is_soaked]
        title = f"{lasting:.0f} s, a fault every {every:.0f} s"
        return cls(seed, replace(fit[0], row="soak", title=title), fit, lasting, every)

    def span(self, outage: float) -> float:  # noqa: ARG002
        return self.lasting

    def script(self, drawing: Drawing) -> Script:
        """Chapter after chapter, each as the load of a wave is."""
        chapters = [self._chapter(drawing, k) for k in range(int(self.lasting // CHAPTER))]
        return Script(
            [step for chapter in chapters for step in chapter.steps],
            [fix for chapter in chapters for fix in chapter.fixes],
        )

    def _chapter(self, whole: Drawing, number: int) -> Script:
        after = number * CHAPTER
        began = whole.began + timedelta(seconds=after)
        drawn = replace(whole, began=began, span=CHAPTER, prefix=f"{number}-").script(ROUNDS)
        return Script(
            [replace(step, at=step.at + after) for step in drawn.steps],
            [(at + after, name) for at, name in drawn.fixes],
        )

    async def strikes(self, scene: Scene, began: datetime) -> list[Outage]:
        """As many as there is time for; each that there is before any comes again."""
        outages: list[Outage] = []
        left: list[Fault] = []
        while now() < began + timedelta(seconds=self.lasting - self.every):
            left = left or scene.dice.sample(self.faults, len(self.faults))
            scene.tenant = f"{self.name}-{len(outages)}"  # what a fault asks for is its own
            next_at = now() + timedelta(seconds=self.every)
            outages.append(await self._one(scene, left.pop()))
            async with supervised(scene):
                await asyncio.sleep(max(0.0, (next_at - now()).total_seconds()))
        scene.notes["faults"] = len(outages)
        return outages

    async def _one(self, scene: Scene, fault: Fault) -> Outage:
        """One that could not be made or healed is told, and does not end the soak."""
        struck_at = now()
        say(f"    {struck_at:%H:%M:%S} {fault.row:4} {fault.title}")
        try:
            return await struck(scene, fault)
        except Exception as error:  # noqa: BLE001  # judged where deliveries are handled
            scene.find(Kind.RECORD, fault.row, f"could not be made: {error!r}")
            return Outage(fault.row, struck_at, now(), lapses=fault.lapses)
