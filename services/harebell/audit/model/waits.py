"""The reasons for which due runs wait: deferrals by breakers and rates, and slots in use."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import chain
from typing import Final
from uuid import UUID

from harebell.contract.breakers import BreakerState
from harebell.contract.ids import RunKey

RELEASE_TIME: Final = timedelta(seconds=30)  # after a deferral, until each deferred run has left
# A breaker with waiting runs probes its downstream and changes its state, unless services are dead.
MAX_UNCHANGED: Final = timedelta(minutes=15)


@dataclass(frozen=True, slots=True)
class DeferredRange:
    """A time range in which a breaker or the rate of a tenant deferred runs."""

    since: datetime
    until: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class BreakerRow:
    """A row of a table of breakers, with the start of its deferral that has no recorded end."""

    tenant: str | None  # None: the breaker of all tenants
    downstream: str
    state: BreakerState
    since: datetime | None
    forced: BreakerState | None
    forced_at: datetime | None
    forced_until: datetime | None
    deferring_since: datetime | None

    def deferral(self, now: datetime, *, is_probed: bool) -> DeferredRange | None:
        """Return the deferral that lasts, or that ended before its end was recorded.

        `is_probed` is true if an attempt calls the downstream now.
        """
        opened_at = self.forced_at if self.forced is BreakerState.OPEN else self.since
        since = self.deferring_since or opened_at
        if since is None:
            return None
        return DeferredRange(
            since, max(since, min(now, self._deferred_until(now, is_probed=is_probed)))
        )

    def _deferred_until(self, now: datetime, *, is_probed: bool) -> datetime:
        """Return the time up to which the row shows that runs were deferred."""
        is_forced = self.forced_until is None or now < self.forced_until
        if self.forced is not None and is_forced:
            return now if self.forced is BreakerState.OPEN else self.forced_at or now
        ends = [self.since, self.forced_at, self.forced_until]
        changed_at = max(each for each in ends if each is not None)
        if self.state is BreakerState.CLOSED:
            return changed_at
        return now if is_probed else changed_at + MAX_UNCHANGED


@dataclass(frozen=True, slots=True)
class OverlapWait:
    """The runs of a schedule that wait for its overlap slot.

    `is_occupied` is true while another run has the slot.
    `free_since` is the latest end of a run with the slot or the latest wake of a waiting run.
    """

    is_occupied: bool
    free_since: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelWait:
    """The wait of the run at the front of the line of a concurrency label.

    `is_occupied` is true while other runs have all slots.
    `free_since` is the latest time at which the run or another run of the label began to wait,
    ended or lost its reservation.
    """

    is_occupied: bool
    free_since: datetime


NO_OVERLAP: Final = OverlapWait(is_occupied=False, free_since=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Waits:
    """The deferrals by the breaker of each tenant and of all tenants, and the overlap slots.

    Deferrals are found by tenant, or None for all tenants, and downstream, and overlap slots by
    schedule. `rates` has the ranges in which the quota `runs_per_second` deferred runs, by tenant.
    """

    deferrals: Mapping[tuple[str | None, str], Sequence[DeferredRange]] = field(
        default_factory=dict
    )
    overlaps: Mapping[UUID, OverlapWait] = field(default_factory=dict)
    rates: Mapping[str, Sequence[DeferredRange]] = field(default_factory=dict)
    labels: Mapping[RunKey, LabelWait] = field(default_factory=dict)  # of the fronts of the lines

    def delay(
        self, downstream: str, expected: datetime, until: datetime, *, tenant: str
    ) -> timedelta:
        """Return the time from `expected` to `until` in which nothing deferred the run.

        A deferred run leaves within `RELEASE_TIME` after the end of the deferral.
        """
        delay, cursor = timedelta(0), expected
        keys = (None, downstream), (tenant, downstream)
        by_breakers = (self.deferrals.get(key, ()) for key in keys)
        deferrals = chain(*by_breakers, self.rates.get(tenant, ()))
        for each in sorted(deferrals, key=lambda each: each.since):
            delay += max(min(each.since, until) - cursor, timedelta(0))
            cursor = max(cursor, each.until + RELEASE_TIME)
        return delay + max(until - cursor, timedelta(0))

    def overlap_of(self, schedule_id: UUID) -> OverlapWait:
        return self.overlaps.get(schedule_id, NO_OVERLAP)


NO_WAITS: Final = Waits()
