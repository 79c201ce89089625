"""The capacity of a lane, and the share of it that one target or one tenant may use. Pure.

A slow or hanging target leaves the rest of the lane to the other targets.
The share of a tenant is strict. An attempt keeps its slot until its timeout, so an attempt beyond
the share could delay the first run of another tenant by that timeout.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from math import ceil
from statistics import fmean
from typing import Final, TypeAlias

from harebell.messaging.topology.delay_queues import DELAY_TTLS_MS, REQUEUE_TTL_MS

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
MAX_REQUEUE: Final = timedelta(minutes=1)
MAX_IDLE_TARGETS: Final = 1_000  # whose throughput a lane remembers
# The largest number of attempts of a tenant that run at once in an executor, or None.
ConcurrencyQuota: TypeAlias = Callable[[str], int | None]


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


@dataclass(slots=True)
class TargetUsage:
    """The slots that one target uses, and the throughput of its attempts."""

    throughput: ThroughputEstimate
    running: int = 0


@dataclass(slots=True, kw_only=True)
class TargetBulkhead:
    """The slots of a lane by target. One target may use at most `max_running` slots."""

    slots: int
    max_share: float  # of the slots, in (0, 1]
    max_running: int = field(init=False)
    _usage: dict[str, TargetUsage] = field(default_factory=dict)  # the latest start is the last

    def __post_init__(self) -> None:
        self.max_running = max(1, int(self.slots * self.max_share))

    def __len__(self) -> int:
        """Return the number of remembered targets."""
        return len(self._usage)

    def has_capacity(self, downstream: str, /) -> bool:
        """Return whether one more attempt of the target may start."""
        usage = self._usage.get(downstream)
        return usage is None or usage.running < self.max_running

    def start(self, downstream: str, /, expected_seconds: float = CLAIM_AHEAD) -> None:
        """Count the start of an attempt.

        `expected_seconds` is the duration of the attempts of the lane, as an estimate for a new
        target.
        """
        usage = self._usage.pop(downstream, None) or TargetUsage(
            ThroughputEstimate(self.max_running, expected_seconds)
        )
        usage.running += 1
        self._usage[downstream] = usage
        if len(self._usage) > MAX_IDLE_TARGETS + self.slots:
            del self._usage[next(name for name, each in self._usage.items() if not each.running)]

    def finish(self, downstream: str, /, seconds: float) -> None:
        """Count the end of an attempt that took `seconds`."""
        usage = self._usage[downstream]
        usage.running -= 1
        usage.throughput.record(seconds)

    def saturated(self, deferred_counts: Mapping[str, int]) -> dict[str, int]:
        """Return the targets without capacity that have enough deferred runs, with that number.

        Enough runs are the runs that start while a requeued ticket is in its delay queue.
        """
        return {
            downstream: enough
            for downstream, count in deferred_counts.items()
            if not self.has_capacity(downstream) and count >= (enough := self._enough(downstream))
        }

    def _enough(self, downstream: str) -> int:
        requeue_seconds = REQUEUE_TTL_MS / 1000
        usage = self._usage.get(downstream)  # None: another lane uses the quota of a tenant
        measured = CLAIM_AHEAD if usage is None else usage.throughput.seconds
        # The lower bound prevents a division by zero.
        seconds = max(measured, requeue_seconds / MAX_UNSTARTED)
        started = self.max_running * requeue_seconds / seconds
        return min(MAX_UNSTARTED, max(self.slots, ceil(started)))


def requeue_ttl(lateness: timedelta, random_fraction: float) -> int:
    """Return the time in milliseconds for which a ticket of a saturated target is requeued.

    The time is at most `lateness`, so that a long backlog costs less and less. `random_fraction` in
    [0, 1) spreads the tickets over the permitted delay queues.
    """
    max_ms = max(REQUEUE_TTL_MS, min(lateness, MAX_REQUEUE) / timedelta(milliseconds=1))
    permitted = [ms for ms in DELAY_TTLS_MS if REQUEUE_TTL_MS <= ms <= max_ms]
    return permitted[int(random_fraction * len(permitted))]


def no_quota(tenant: str) -> None:  # required by the type
    """Return None for every tenant."""


@dataclass(slots=True, kw_only=True)
class TenantAttempts:
    """The unfinished attempts of each tenant in all lanes of an executor, within its quota."""

    quota: ConcurrencyQuota = no_quota
    _running: Counter[str] = field(default_factory=Counter)
    _limited: set[str] = field(default_factory=set)  # tenants whose runs the quota has deferred
    _resumed: list[Callable[[str], None]] = field(default_factory=list)

    def watch(self, resume: Callable[[str], None]) -> None:
        """Call `resume` with a tenant when a further attempt of the tenant may start."""
        self._resumed.append(resume)

    def has_capacity(self, tenant: str) -> bool:
        """Return whether one more attempt of the tenant is within its quota."""
        quota = self.quota(tenant)
        if quota is None or self._running[tenant] < quota:
            return True
        self._limited.add(tenant)
        return False

    def start(self, tenant: str) -> None:
        self._running[tenant] += 1

    def finish(self, tenant: str) -> None:
        """Count the end of an attempt, and resume the runs that the quota has deferred."""
        self._running[tenant] -= 1
        if tenant in self._limited:
            for resume in self._resumed:
                resume(tenant)
        if not self._running[tenant]:
            del self._running[tenant]
            self._limited.discard(tenant)


@dataclass(slots=True, kw_only=True)
class TenantBulkhead(TargetBulkhead):
    """The slots of a lane by tenant, and the quota of the tenant in the whole executor."""

    attempts: TenantAttempts = field(default_factory=TenantAttempts)

    def has_capacity(self, tenant: str) -> bool:
        """Return whether one more attempt of the tenant may start."""
        return TargetBulkhead.has_capacity(self, tenant) and self.attempts.has_capacity(tenant)

    def start(self, tenant: str, expected_seconds: float = CLAIM_AHEAD) -> None:
        """Count the start of an attempt."""
        TargetBulkhead.start(self, tenant, expected_seconds)
        self.attempts.start(tenant)

    def finish(self, tenant: str, seconds: float) -> None:
        """Count the end of an attempt that took `seconds`."""
        TargetBulkhead.finish(self, tenant, seconds)
        self.attempts.finish(tenant)
