"""What a target may have of a lane: a share of its slots, and no more waiting here than it needs.

So a target that is slow or hangs leaves the rest of the lane to the others. Pure.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from math import ceil
from typing import Final

from harebell.executor.model.throughput import CLAIM_AHEAD, MAX_UNSTARTED, ThroughputEstimate
from harebell.messaging.topology.delay_queues import DELAY_TTLS_MS, REQUEUE_TTL_MS

MAX_REQUEUE: Final = timedelta(minutes=1)
MAX_KNOWN: Final = 1_000  # targets whose pace is remembered, beside those that run


@dataclass(slots=True)
class TargetUsage:
    """Of slots, by one target."""

    pace: ThroughputEstimate
    running: int = 0


@dataclass(slots=True)
class TargetBulkhead:
    """Of a lane. `most`: attempts of one target that may run at once."""

    slots: int
    share: float
    most: int = field(init=False)
    _used: dict[str, TargetUsage] = field(default_factory=dict)  # who ran last comes last

    def __post_init__(self) -> None:
        self.most = max(1, int(self.slots * self.share))

    def __len__(self) -> int:
        """Targets that are remembered."""
        return len(self._used)

    def has_capacity(self, downstream: str) -> bool:
        use = self._used.get(downstream)
        return use is None or use.running < self.most

    def began(self, downstream: str, usual: float = CLAIM_AHEAD) -> None:
        """`usual`: seconds that the lane's attempts take, to judge a target by that is new here."""
        use = self._used.pop(downstream, None) or TargetUsage(ThroughputEstimate(self.most, usual))
        use.running += 1
        self._used[downstream] = use
        if len(self._used) > MAX_KNOWN + self.slots:
            del self._used[next(name for name, each in self._used.items() if not each.running)]

    def ended(self, downstream: str, seconds: float) -> None:
        use = self._used[downstream]
        use.running -= 1
        use.pace.record(seconds)

    def saturated(self, aside: Mapping[str, int]) -> frozenset[str]:
        """Targets without room, of which as many stand aside as start while a ticket goes round."""
        return frozenset(
            downstream
            for downstream, count in aside.items()
            if not self.has_capacity(downstream) and count >= self._enough(downstream)
        )

    def _enough(self, downstream: str) -> int:
        seconds = self._used[downstream].pace.seconds
        started = (
            self.most * REQUEUE_TTL_MS / 1000 / max(seconds, REQUEUE_TTL_MS / 1000 / MAX_UNSTARTED)
        )
        return min(MAX_UNSTARTED, max(self.slots, ceil(started)))


def requeue_ttl(late: timedelta, dice: float) -> int:
    """Milliseconds that a ticket of a crowded target goes round: no longer than it is late.

    So a backlog that lasts costs less and less, and comes back spread.
    """
    longest = max(REQUEUE_TTL_MS, min(late, MAX_REQUEUE) / timedelta(milliseconds=1))
    tiers = [ms for ms in DELAY_TTLS_MS if REQUEUE_TTL_MS <= ms <= longest]
    return tiers[int(dice * len(tiers))]
