"""TODO: describe this module."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Final

CLAIM_AHEAD: Final = 0.5  # seconds of a lane's work that may lie claimed and unstarted
MAX_UNSTARTED: Final = 20_000  # runs of a lane
MAX_LATE: Final = 2_000  # of them, while some are late
LOW_WATER: Final = 0.5  # of that: above it nothing is claimed, for claims of few rows cost most
# Attempts that tell how long they take: those of a second, so that one hiccup decides nothing.
FEWEST: Final = 32
MOST: Final = 4_096


@dataclass(slots=True)
class ThroughputEstimate:
    """How long attempts take lately. `seconds` before the first: as for a slot each."""

    slots: int
    seconds: float = CLAIM_AHEAD
    _told: int = 0  # attempts that `seconds` is the mean of

    def record(self, after: float) -> None:
        of_a_second = self.slots / max(self.seconds, self.slots / MOST)
        self._told = min(self._told + 1, max(FEWEST, int(of_a_second)))
        self.seconds += (after - self.seconds) / self._told

    def capacity(self, unstarted: int, running: Sequence[float], *, is_late: bool = False) -> int:
        """How many more runs the lane may claim; the rest stays in the queue for whoever is free.

        `running`: for how long each attempt has run that has not ended; none may ever end.
        `is_late`: what has been claimed is to start first.
        """
        lately = max(self.seconds, fmean(running) if len(running) == self.slots else 0.0)
        most = MAX_LATE if is_late else MAX_UNSTARTED
        wanted = max(
            self.slots, int(self.slots * CLAIM_AHEAD / max(lately, CLAIM_AHEAD * self.slots / most))
        )
        return 0 if unstarted > wanted * LOW_WATER else wanted - unstarted
