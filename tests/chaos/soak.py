"""A soak: one long load with a new fault at a fixed interval, and one check at the end."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final

from tests.acceptance.stack import now
from tests.chaos.environment import Environment
from tests.chaos.faults import Fault
from tests.chaos.generators import LoadGenerator, Script
from tests.chaos.history import Outage
from tests.chaos.result import FindingKind, print_line
from tests.chaos.round import Round, inject_fault, supervise_services

CHAPTER_SPAN: Final = 15.0  # seconds of commands that are generated together
SCHEDULES_PER_KIND: Final = 2  # in one chapter


@dataclass(frozen=True)
class Soak(Round):
    """A round with many faults. `fault` is the name of all of them.

    The duration of each recovery decides the time of the next fault, so no soak repeats exactly.
    """

    faults: Sequence[Fault]
    duration: float  # seconds
    interval: float  # seconds

    @classmethod
    def create(
        cls, seed: int, faults: Sequence[Fault], *, duration: float, interval: float
    ) -> "Soak":
        suitable = [each for each in faults if each.is_for_soak]
        title = f"{duration:.0f} s, a fault every {interval:.0f} s"
        name = replace(suitable[0], row="soak", title=title)
        return cls(seed, name, faults=suitable, duration=duration, interval=interval)

    def span(self, outage: float) -> float:  # noqa: ARG002  # the duration includes all outages
        return self.duration

    def script(self, generator: LoadGenerator) -> Script:
        """Return the chapters in their order, each with the load of a round."""
        count = int(self.duration // CHAPTER_SPAN)
        chapters = [self._chapter(generator, number) for number in range(count)]
        return Script(
            [step for chapter in chapters for step in chapter.steps],
            [repair for chapter in chapters for repair in chapter.repairs],
        )

    def _chapter(self, generator: LoadGenerator, number: int) -> Script:
        offset = number * CHAPTER_SPAN
        started_at = generator.started_at + timedelta(seconds=offset)
        of_chapter = replace(
            generator, started_at=started_at, span=CHAPTER_SPAN, prefix=f"{number}-"
        )
        script = of_chapter.script(SCHEDULES_PER_KIND)
        return Script(
            [replace(step, at=step.at + offset) for step in script.steps],
            [(at + offset, name) for at, name in script.repairs],
        )

    async def inject_faults(self, environment: Environment, started_at: datetime) -> list[Outage]:
        """Inject faults until the end. No fault repeats before all faults have occurred."""
        outages: list[Outage] = []
        remaining: list[Fault] = []
        while now() < started_at + timedelta(seconds=self.duration - self.interval):
            remaining = remaining or environment.random.sample(self.faults, len(self.faults))
            # A fault with schedules of its own needs its own tenant at each repetition.
            environment.tenant = f"{self.name}-{len(outages)}"
            next_at = now() + timedelta(seconds=self.interval)
            outages.append(await self._inject_one(environment, remaining.pop()))
            async with supervise_services(environment):
                await asyncio.sleep(max(0.0, (next_at - now()).total_seconds()))
        environment.measurements["faults"] = len(outages)
        return outages

    async def _inject_one(self, environment: Environment, fault: Fault) -> Outage:
        """Inject one fault. A failure of the fault is a finding and does not end the soak."""
        started_at = now()
        print_line(f"    {started_at:%H:%M:%S} {fault.row:4} {fault.title}")
        try:
            return await inject_fault(environment, fault)
        except Exception as error:  # noqa: BLE001  # any failure of a fault is a finding
            text = f"the fault failed: {error!r}"
            environment.add_finding(FindingKind.INCONSISTENT, fault.row, text)
            return Outage(
                row=fault.row,
                started_at=started_at,
                ended_at=now(),
                can_expire_leases=fault.can_expire_leases,
            )
