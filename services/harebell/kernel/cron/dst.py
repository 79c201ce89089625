"""What a schedule does with local times that the clocks skip or show twice."""

from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from harebell.contract.when import DstGap, DstOverlap
from harebell.kernel.cron.zones import ClockChange

# From here on Debian's cron takes a change for a correction of the clock, not for summer time.
CORRECTION: Final = timedelta(hours=3)


@dataclass(frozen=True, slots=True)
class DstRule:
    """None is the rule of Debian's cron, which treats fixed times and wildcards differently."""

    fixed: bool
    gap: DstGap | None = None
    overlap: DstOverlap | None = None

    def on_gap(self, seam: ClockChange) -> DstGap:
        if self.gap is not None:
            return self.gap
        return DstGap.NEXT if self._catches_up(seam) else DstGap.SKIP

    def on_overlap(self, seam: ClockChange) -> DstOverlap:
        if self.overlap is not None:
            return self.overlap
        return DstOverlap.FIRST if self._catches_up(seam) else DstOverlap.BOTH

    def _catches_up(self, seam: ClockChange) -> bool:
        return self.fixed and seam.length < CORRECTION
