"""What the clocks did to an instant of a cron rule, for people: moved, or one of two passes."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Final, TypeAlias

from harebell.contract.when import DstGap, DstOverlap
from harebell.domain.cron.expression import Cron
from harebell.domain.cron.timezones import ClockChange, clock_change_at

_SECOND: Final = timedelta(seconds=1)


class RepeatedPass(StrEnum):
    """Which showing of a local time that the clocks show twice."""

    FIRST = "first"
    SECOND = "second"


@dataclass(frozen=True, slots=True)
class MovedTime:
    """The rule names `wall`, which the clocks skip: it runs when they have been set on."""

    wall: datetime


@dataclass(frozen=True, slots=True)
class RepeatedTime:
    """The clocks show `wall` twice. `both`: it runs in the other pass too."""

    wall: datetime
    which: RepeatedPass
    both: bool


DstNote: TypeAlias = MovedTime | RepeatedTime


def dst_note(cron: Cron, instant: datetime) -> DstNote | None:
    """Of an instant that the rule yields."""
    here = instant.astimezone(cron.zone)
    wall = here.replace(tzinfo=None, fold=0)
    seam = clock_change_at(wall, cron.zone)
    if seam is not None and not seam.is_gap:
        which = RepeatedPass.SECOND if here.fold else RepeatedPass.FIRST
        return RepeatedTime(wall, which, both=cron.dst.on_overlap(seam) is DstOverlap.BOTH)
    gap = _gap_before(cron, instant)
    if gap is None or cron.dst.on_gap(gap) is DstGap.SKIP:
        return None
    skipped = cron.calendar.next_after(gap.start - _SECOND)
    return MovedTime(skipped) if skipped is not None and skipped < gap.end else None


def _gap_before(cron: Cron, instant: datetime) -> ClockChange | None:
    """The gap that ends at the instant."""
    earlier = (instant - _SECOND).astimezone(cron.zone).utcoffset() or timedelta(0)
    later = instant.astimezone(cron.zone).utcoffset() or timedelta(0)
    return ClockChange(instant.astimezone(UTC), earlier, later) if later > earlier else None
