"""Time zones by name, and their seams: where the clocks skip local times or show them twice."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from harebell.contract.errors import UnknownTimezone

MAX_ZONE_NAME: Final = 64  # characters; the longest name in use has 32
_SECOND: Final = timedelta(seconds=1)
# On disk beside the zones, but what they mean differs from host to host, or counts leap seconds.
_NOT_ZONES: Final = frozenset({"localtime", "posixrules", "Factory"})
_NOT_FOLDERS: Final = ("posix/", "right/")


def load_timezone(name: str) -> ZoneInfo:
    if len(name) > MAX_ZONE_NAME or name in _NOT_ZONES or name.startswith(_NOT_FOLDERS):
        raise UnknownTimezone(name[:MAX_ZONE_NAME])
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        # ValueError: `../x`, or a file that is no zone; OSError: a folder, such as `Europe`.
        raise UnknownTimezone(name) from error


@dataclass(frozen=True, slots=True)
class ClockChange:
    """Local times in [start, end) do not exist (a gap), or exist twice (an overlap)."""

    instant: datetime  # when the offset changes, UTC
    before: timedelta  # the offset until then
    after: timedelta

    @property
    def is_gap(self) -> bool:
        return self.after > self.before

    @property
    def length(self) -> timedelta:
        return abs(self.after - self.before)

    @property
    def start(self) -> datetime:
        return _local(self.instant, min(self.before, self.after))

    @property
    def end(self) -> datetime:
        return _local(self.instant, max(self.before, self.after))


def clock_change_at(wall: datetime, zone: ZoneInfo) -> ClockChange | None:
    """Return the seam that a local time lies in, if it does."""
    before, after = offset_of(wall, zone, fold=0), offset_of(wall, zone, fold=1)
    if before == after:
        return None
    # The change lies between the two instants that this local time could mean.
    early = instant_of(wall, max(before, after))
    seconds = abs(after - before) // _SECOND
    low, high = 0, seconds
    while high - low > 1:
        middle = (low + high) // 2
        if (early + middle * _SECOND).astimezone(zone).utcoffset() == after:
            high = middle
        else:
            low = middle
    return ClockChange(early + high * _SECOND, before, after)


def offset_of(wall: datetime, zone: ZoneInfo, *, fold: int) -> timedelta:
    """Return the offset; in a gap fold 0 is the one before it, in an overlap that of the first."""
    return wall.replace(tzinfo=zone, fold=fold).utcoffset() or timedelta(0)


def instant_of(wall: datetime, offset: timedelta) -> datetime:
    return (wall - offset).replace(tzinfo=UTC)


def _local(instant: datetime, offset: timedelta) -> datetime:
    return (instant + offset).replace(tzinfo=None)
