"""What a schedule does with local times that the clocks skip or show twice."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final, Protocol
from zoneinfo import ZoneInfo

from harebell.contract.when import DstGap, DstOverlap
from harebell.domain.cron.timezones import ClockChange, clock_change_at, instant_of, offset_of

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


MAX_SEARCH_STEPS: Final = 8  # questions to the calendar in one search
_PASSES: Final = 2  # of a repeated stretch
EARLIEST: Final = datetime(1900, 1, 1, tzinfo=UTC)
LATEST: Final = datetime(9900, 1, 1, tzinfo=UTC)  # the calendar looks some decades further
_SECOND: Final = timedelta(seconds=1)


class LocalTimeMatcher(Protocol):
    def next_after(self, wall: datetime) -> datetime | None: ...


def next_time_after(
    moment: datetime, zone: ZoneInfo, rule: DstRule, calendar: LocalTimeMatcher
) -> datetime | None:
    """Return the first instant strictly after; None if the bounded search finds none."""
    moment = max(moment, EARLIEST)
    if moment >= LATEST:
        return None
    here = moment.astimezone(zone)
    wall = here.replace(tzinfo=None, microsecond=0, fold=0)
    seam = clock_change_at(wall, zone)
    if seam is not None:
        for after, fold in _passes_left(wall, here.fold, seam, rule.on_overlap(seam)):
            found = calendar.next_after(after)
            if found is not None and found < seam.end:
                instant = instant_of(found, offset_of(found, zone, fold=fold))
                # Always so with two passes, but a zone may change twice within an hour.
                if instant > moment:
                    return instant
        wall = seam.end - _SECOND
    return _land(moment, wall, zone, rule, calendar)


def _passes_left(
    wall: datetime, fold: int, seam: ClockChange, choice: DstOverlap
) -> Iterator[tuple[datetime, int]]:
    """Yield where to look on in each pass of the repeated stretch that we stand in."""
    if fold == 0 and choice is not DstOverlap.SECOND:
        yield wall, 0
    if choice is not DstOverlap.FIRST:
        yield (wall if fold == 1 else seam.start - _SECOND), 1


def _land(
    moment: datetime, wall: datetime, zone: ZoneInfo, rule: DstRule, calendar: LocalTimeMatcher
) -> datetime | None:
    """Follow local times after `wall` until one of them is an instant that counts."""
    for _ in range(MAX_SEARCH_STEPS - _PASSES):
        found = calendar.next_after(wall)
        if found is None:
            return None
        seam = clock_change_at(found, zone)
        instant = _instant(found, zone, rule, seam)
        if instant is not None and instant > moment:
            return instant
        # All of a skipped stretch is passed at once, or seconds in a gap would take for ever.
        wall = seam.end - _SECOND if seam is not None and seam.is_gap else found
    return None


def _instant(
    wall: datetime, zone: ZoneInfo, rule: DstRule, seam: ClockChange | None
) -> datetime | None:
    if seam is None:
        return instant_of(wall, offset_of(wall, zone, fold=0))
    if seam.is_gap:
        return seam.instant if rule.on_gap(seam) is DstGap.NEXT else None
    second = rule.on_overlap(seam) is DstOverlap.SECOND
    return instant_of(wall, seam.after if second else seam.before)
