"""Time zones by name, and their clock changes, where local times are missing or occur twice."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from harebell.contract.errors import UnknownTimezone

MAX_ZONE_NAME: Final = 64  # characters; the longest existing name has 32
_SECOND: Final = timedelta(seconds=1)
# The database contains these files, but their meaning differs between hosts.
_NOT_ZONES: Final = frozenset({"localtime", "posixrules", "Factory"})
# The zones in `right/` count leap seconds.
_NOT_FOLDERS: Final = ("posix/", "right/")


def load_timezone(name: str) -> ZoneInfo:
    """Return the time zone of an IANA name. Raise `UnknownTimezone`."""
    if len(name) > MAX_ZONE_NAME or name in _NOT_ZONES or name.startswith(_NOT_FOLDERS):
        raise UnknownTimezone(name[:MAX_ZONE_NAME])
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        # ValueError: `../x`, or a file with other content. OSError: a folder, such as `Europe`.
        raise UnknownTimezone(name) from error


@dataclass(frozen=True, slots=True, kw_only=True)
class ClockChange:
    """A change of the UTC offset at `at` (UTC), from `before` to `after`.

    Local times in [start, end) do not exist (a gap) or occur twice (an overlap).
    """

    at: datetime
    before: timedelta
    after: timedelta

    @property
    def is_gap(self) -> bool:
        return self.after > self.before

    @property
    def length(self) -> timedelta:
        return abs(self.after - self.before)

    @property
    def start(self) -> datetime:
        return _to_local(self.at, min(self.before, self.after))

    @property
    def end(self) -> datetime:
        return _to_local(self.at, max(self.before, self.after))


def clock_change_at(local: datetime, zone: ZoneInfo) -> ClockChange | None:
    """Return the clock change that affects a local time, or None."""
    before, after = offset_of(local, zone, fold=0), offset_of(local, zone, fold=1)
    if before == after:
        return None
    # The change is between the two UTC times that this local time can have.
    earliest = to_utc(local, max(before, after))
    low, high = 0, abs(after - before) // _SECOND
    while high - low > 1:
        middle = (low + high) // 2
        if (earliest + middle * _SECOND).astimezone(zone).utcoffset() == after:
            high = middle
        else:
            low = middle
    return ClockChange(at=earliest + high * _SECOND, before=before, after=after)


def offset_of(local: datetime, zone: ZoneInfo, *, fold: int) -> timedelta:
    """Return the UTC offset of a local time.

    With fold 0, a time in a gap has the offset before the gap, and a repeated time has the first.
    """
    return local.replace(tzinfo=zone, fold=fold).utcoffset() or timedelta(0)


def to_utc(local: datetime, offset: timedelta) -> datetime:
    return (local - offset).replace(tzinfo=UTC)


def _to_local(time: datetime, offset: timedelta) -> datetime:
    return (time + offset).replace(tzinfo=None)
