"""The next scheduled time of a cron expression, across gaps and overlaps of local time."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final, Protocol
from zoneinfo import ZoneInfo

from harebell.contract.when import DstGap, DstOverlap
from harebell.domain.cron.timezones import (
    ClockChange,
    clock_change_at,
    offset_of,
    to_utc,
)

# Debian's cron treats a change of this length as a correction of the clock, not as daylight saving.
MIN_CORRECTION: Final = timedelta(hours=3)
MAX_SEARCH_STEPS: Final = 8  # calls of the matcher in one search
EARLIEST: Final = datetime(1900, 1, 1, tzinfo=UTC)
LATEST: Final = datetime(9900, 1, 1, tzinfo=UTC)  # the matcher searches some decades further
_PASSES: Final = 2  # of a repeated hour
_SECOND: Final = timedelta(seconds=1)


@dataclass(frozen=True, slots=True)
class DstRule:
    """The rule for gaps and overlaps. None selects the rule of Debian's cron.

    Debian's cron distinguishes fixed times from expressions with `*` in the minute or the hour.
    """

    is_fixed_time: bool
    gap: DstGap | None = None
    overlap: DstOverlap | None = None

    def on_gap(self, change: ClockChange) -> DstGap:
        if self.gap is not None:
            return self.gap
        return DstGap.NEXT if self._runs_once(change) else DstGap.SKIP

    def on_overlap(self, change: ClockChange) -> DstOverlap:
        if self.overlap is not None:
            return self.overlap
        return DstOverlap.FIRST if self._runs_once(change) else DstOverlap.BOTH

    def _runs_once(self, change: ClockChange) -> bool:
        return self.is_fixed_time and change.length < MIN_CORRECTION


class LocalTimeMatcher(Protocol):
    """The source of matching local times."""

    def next_after(self, local: datetime) -> datetime | None: ...


def next_time_after(
    after: datetime, zone: ZoneInfo, *, rule: DstRule, matcher: LocalTimeMatcher
) -> datetime | None:
    """Return the first scheduled time after `after`, or None if the bounded search finds none."""
    after = max(after, EARLIEST)
    if after >= LATEST:
        return None
    zoned = after.astimezone(zone)
    local = zoned.replace(tzinfo=None, microsecond=0, fold=0)
    change = clock_change_at(local, zone)
    if change is not None:
        starts = _search_starts(local, zoned.fold, change=change, choice=rule.on_overlap(change))
        for start, fold in starts:
            found = matcher.next_after(start)
            if found is not None and found < change.end:
                time = to_utc(found, offset_of(found, zone, fold=fold))
                # Two passes always give a later time, but a zone may change twice within an hour.
                if time > after:
                    return time
        local = change.end - _SECOND
    return _search(local, zone, after=after, rule=rule, matcher=matcher)


def _search_starts(
    local: datetime, fold: int, *, change: ClockChange, choice: DstOverlap
) -> Iterator[tuple[datetime, int]]:
    """Yield the start of the search in each remaining pass of a repeated hour."""
    if fold == 0 and choice is not DstOverlap.SECOND:
        yield local, 0
    if choice is not DstOverlap.FIRST:
        yield (local if fold == 1 else change.start - _SECOND), 1


def _search(
    local: datetime,
    zone: ZoneInfo,
    *,
    after: datetime,
    rule: DstRule,
    matcher: LocalTimeMatcher,
) -> datetime | None:
    """Convert matches after `local` to UTC until one of them is later than `after`."""
    for _ in range(MAX_SEARCH_STEPS - _PASSES):
        found = matcher.next_after(local)
        if found is None:
            return None
        change = clock_change_at(found, zone)
        time = _to_scheduled_time(found, zone, rule=rule, change=change)
        if time is not None and time > after:
            return time
        # One step crosses a whole gap, so that an expression with seconds stays within the bound.
        local = change.end - _SECOND if change is not None and change.is_gap else found
    return None


def _to_scheduled_time(
    local: datetime, zone: ZoneInfo, *, rule: DstRule, change: ClockChange | None
) -> datetime | None:
    if change is None:
        return to_utc(local, offset_of(local, zone, fold=0))
    if change.is_gap:
        return change.at if rule.on_gap(change) is DstGap.NEXT else None
    is_second = rule.on_overlap(change) is DstOverlap.SECOND
    return to_utc(local, change.after if is_second else change.before)
