"""Notes about the effect of a clock change on a scheduled time, for a preview."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Final, TypeAlias

from harebell.contract.when import DstGap, DstOverlap
from harebell.domain.cron.expression import Cron
from harebell.domain.cron.timezones import ClockChange, clock_change_at

_SECOND: Final = timedelta(seconds=1)


class RepeatedPass(StrEnum):
    """The first or the second occasion of a local time that occurs twice."""

    FIRST = "first"
    SECOND = "second"


@dataclass(frozen=True, slots=True)
class MovedTime:
    """A local time within a gap. The run has the first time after the gap."""

    local: datetime


@dataclass(frozen=True, slots=True)
class RepeatedTime:
    """A local time that occurs twice. `both` is true if each occasion has a run."""

    local: datetime
    which: RepeatedPass
    both: bool


DstNote: TypeAlias = MovedTime | RepeatedTime


def dst_note(cron: Cron, time: datetime) -> DstNote | None:
    """Return the note about a scheduled time of `cron`, or None without a clock change."""
    zoned = time.astimezone(cron.zone)
    local = zoned.replace(tzinfo=None, fold=0)
    change = clock_change_at(local, cron.zone)
    if change is not None and not change.is_gap:
        which = RepeatedPass.SECOND if zoned.fold else RepeatedPass.FIRST
        return RepeatedTime(local, which, both=cron.dst.on_overlap(change) is DstOverlap.BOTH)
    gap = _gap_before(cron, time)
    if gap is None or cron.dst.on_gap(gap) is DstGap.SKIP:
        return None
    skipped = cron.matcher.next_after(gap.start - _SECOND)
    return MovedTime(skipped) if skipped is not None and skipped < gap.end else None


def _gap_before(cron: Cron, time: datetime) -> ClockChange | None:
    """Return the gap that ends at `time`."""
    earlier = (time - _SECOND).astimezone(cron.zone).utcoffset() or timedelta(0)
    later = time.astimezone(cron.zone).utcoffset() or timedelta(0)
    if later <= earlier:
        return None
    return ClockChange(at=time.astimezone(UTC), before=earlier, after=later)
