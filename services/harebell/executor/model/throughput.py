"""The throughput of a lane: the duration of its attempts, and the runs that it may claim."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Final

CLAIM_AHEAD: Final = 0.5  # seconds of work of a lane that may be claimed and unstarted
MAX_UNSTARTED: Final = 20_000  # claimed runs of a lane
MAX_UNSTARTED_WHEN_LATE: Final = 2_000  # claimed runs of a lane while one of them is late
# Tickets that must start before every claimed run may exceed the permitted number by this factor.
URGENT_FACTOR: Final = 2
# A part of the permitted number. Above it the lane claims nothing, because statements with few rows
# cost the most per row.
LOW_WATER_MARK: Final = 0.5
# The mean covers the attempts of about one second, so that one slow attempt changes little.
MIN_SAMPLES: Final = 32
MAX_SAMPLES: Final = 4_096


@dataclass(slots=True)
class ThroughputEstimate:
    """The mean duration of recent attempts on a number of slots.

    Before the first attempt, `seconds` assumes one run per slot.
    """

    slots: int
    seconds: float = CLAIM_AHEAD
    _samples: int = 0  # attempts in the mean

    def record(self, seconds: float) -> None:
        """Add the duration of one attempt to the mean."""
        per_second = self.slots / max(self.seconds, self.slots / MAX_SAMPLES)
        self._samples = min(self._samples + 1, max(MIN_SAMPLES, int(per_second)))
        self.seconds += (seconds - self.seconds) / self._samples

    def capacity(self, unstarted: int, running: Sequence[float], *, is_late: bool = False) -> int:
        """Return the number of runs that the lane may claim in addition to `unstarted` runs."""
        wanted = self._max_unstarted(running, is_late=is_late)
        return 0 if unstarted > wanted * LOW_WATER_MARK else wanted - unstarted

    def urgent_capacity(
        self, unstarted: int, running: Sequence[float], *, is_late: bool = False
    ) -> int:
        """Return the number of urgent runs that the lane may claim, whatever its capacity is."""
        return max(0, URGENT_FACTOR * self._max_unstarted(running, is_late=is_late) - unstarted)

    def _max_unstarted(self, running: Sequence[float], *, is_late: bool) -> int:
        """Return the number of claimed and unstarted runs that the lane wants.

        `running` contains the seconds since the start of each unfinished attempt, because such
        attempts may never end. `is_late` lowers the limit, so that the claimed runs start first.
        """
        longest = max(self.seconds, fmean(running) if len(running) == self.slots else 0.0)
        limit = MAX_UNSTARTED_WHEN_LATE if is_late else MAX_UNSTARTED
        return max(
            self.slots,
            int(self.slots * CLAIM_AHEAD / max(longest, CLAIM_AHEAD * self.slots / limit)),
        )
