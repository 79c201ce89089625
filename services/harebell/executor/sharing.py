"""What a target may have of a lane: a share of its slots, and no more waiting here than it needs.

So a target that is slow or hangs leaves the rest of the lane to the others. Pure.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from math import ceil
from typing import Final

from harebell.executor.core import MAX_UNSTARTED, Pace
from harebell.kernel.delay import CIRCLE, TIERS

LONGEST_ROUND: Final = timedelta(minutes=1)


@dataclass(slots=True)
class Use:
    """Of slots, by one target."""

    pace: Pace
    running: int = 0


@dataclass(slots=True)
class Shares:
    """Of a lane. `most`: attempts of one target that may run at once."""

    slots: int
    share: float
    most: int = field(init=False)
    _used: dict[str, Use] = field(default_factory=dict)  # by those that run just now

    def __post_init__(self) -> None:
        self.most = max(1, int(self.slots * self.share))

    def has_room(self, downstream: str) -> bool:
        use = self._used.get(downstream)
        return use is None or use.running < self.most

    def began(self, downstream: str) -> None:
        self._used.setdefault(downstream, Use(Pace(self.most))).running += 1

    def ended(self, downstream: str, seconds: float) -> None:
        use = self._used[downstream]
        use.running -= 1
        use.pace.ended(seconds)
        if not use.running:
            del self._used[downstream]

    def crowded(self, aside: Mapping[str, int]) -> frozenset[str]:
        """Targets without room, of which as many stand aside as start while a ticket goes round."""
        return frozenset(
            downstream
            for downstream, count in aside.items()
            if not self.has_room(downstream) and count >= self._enough(downstream)
        )

    def _enough(self, downstream: str) -> int:
        seconds = self._used[downstream].pace.seconds
        started = self.most * CIRCLE / 1000 / max(seconds, CIRCLE / 1000 / MAX_UNSTARTED)
        return min(MAX_UNSTARTED, max(self.slots, ceil(started)))


def round_for(late: timedelta, dice: float) -> int:
    """Milliseconds that a ticket of a crowded target goes round: no longer than it is late.

    So a backlog that lasts costs less and less, and comes back spread.
    """
    longest = max(CIRCLE, min(late, LONGEST_ROUND) / timedelta(milliseconds=1))
    tiers = [ms for ms in TIERS if CIRCLE <= ms <= longest]
    return tiers[int(dice * len(tiers))]
