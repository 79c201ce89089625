"""Times that calendars move to another day: the next one, and the origins of one. Pure."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final, NamedTuple, Protocol
from zoneinfo import ZoneInfo

from harebell.contract.policy import OnExcluded
from harebell.domain.calendars import (
    MAX_SHIFT_DAYS,
    CalendarDecision,
    CalendarRule,
    ExcludedTime,
    ShiftedTime,
    decide_time,
    instant_of,
)

MAX_MOVE_STEPS: Final = 500  # times examined in one search
MAX_EXAMINED: Final = 4 * MAX_MOVE_STEPS  # times that one object remembers
_RESOLUTION: Final = timedelta(milliseconds=1)
_DAY: Final = timedelta(days=1)
# A local day has at most this length, also on the night of a clock change.
_LONGEST_DAY: Final = timedelta(hours=26)
_MAX_DISTANCE: Final = MAX_SHIFT_DAYS * _LONGEST_DAY  # between a time and its replacement
_LONGEST_OVERLAP: Final = timedelta(hours=24)  # of local time, such as in Kwajalein in 1969


class Times(Protocol):
    """The times of a rule before a calendar decides."""

    def next_after(self, after: datetime) -> datetime | None: ...


class _ExaminedTime(NamedTuple):
    time: datetime
    decision: CalendarDecision
    cursor: datetime | None  # of the next time to examine


@dataclass(frozen=True, slots=True, kw_only=True)
class MovedTimes:
    """The times of a rule that calendars move, in the time zone of its schedule.

    An object remembers the times that it has examined, so that the searches for consecutive times
    examine each of them once. It serves one search or one such sequence.
    """

    times: Times
    rule: CalendarRule
    zone: ZoneInfo
    _examined: dict[datetime, _ExaminedTime | None] = field(
        default_factory=dict, init=False, compare=False, repr=False
    )
    _open: dict[datetime, datetime | None] = field(
        default_factory=dict, init=False, compare=False, repr=False
    )

    def next_after(self, after: datetime, kept: datetime | None) -> datetime | None:
        """Return the first kept or moved time after `after`, or None.

        `kept` is the first kept time after `after`. A search examines at most `MAX_MOVE_STEPS`
        times and then returns the first one that it found.
        """
        best = kept
        cursor: datetime | None = self._first_origin(after, best)
        last = self._last_origin(after, best)
        for _ in range(MAX_MOVE_STEPS):
            found = None if cursor is None else self._examine_after(cursor)
            if found is None or (last is not None and found.time >= last):
                return best
            cursor, decision = found.cursor, found.decision
            if isinstance(decision, ExcludedTime):
                continue
            if decision.at > after and (best is None or decision.at < best):
                best = decision.at
                last = self._last_origin(after, best)
        return best

    def origins_of(self, at: datetime) -> Iterator[tuple[datetime, str]]:
        """Yield the excluded times that `at` replaces, each with the calendar that excludes it."""
        if self.rule.on_excluded is OnExcluded.SKIP:
            return
        before = at - _RESOLUTION
        cursor, last = self._first_origin(before, at), self._last_origin(before, at)
        for _ in range(MAX_MOVE_STEPS):
            found = self._examine_after(cursor)
            if found is None or (last is not None and found.time > last):
                return
            decision = found.decision
            if isinstance(decision, ShiftedTime) and decision.at == at:
                yield found.time, decision.calendar
            cursor = found.time

    def _examine_after(self, cursor: datetime) -> _ExaminedTime | None:
        """Return the first time of the rule after the cursor, or None."""
        if cursor not in self._examined:
            if len(self._examined) >= MAX_EXAMINED:
                self._examined.clear()
                self._open.clear()
            time = self.times.next_after(cursor)
            self._examined[cursor] = None if time is None else self._examine(time)
        return self._examined[cursor]

    def _examine(self, time: datetime) -> _ExaminedTime:
        decision = decide_time(self.rule, time, self.zone, examined=self._open)
        is_excluded = isinstance(decision, ExcludedTime)
        return _ExaminedTime(time, decision, self._cursor_after(time) if is_excluded else time)

    def _first_origin(self, after: datetime, best: datetime | None) -> datetime:
        """Return an instant before which no time moves to a result after `after`, up to `best`."""
        if self.rule.on_excluded is OnExcluded.PREVIOUS:
            return after
        start = _local(after, self.zone)
        end = start + _DAY if best is None else min(start + _DAY, _last_local(best, self.zone))
        for days in range(1, MAX_SHIFT_DAYS + 1):
            begin = instant_of(start - days * _DAY, self.zone)
            if self.rule.is_open_between(begin, instant_of(end - days * _DAY, self.zone)):
                return begin
        return after - _MAX_DISTANCE

    def _last_origin(self, after: datetime, best: datetime | None) -> datetime | None:
        """Return an instant after which no time moves to a result after `after`, before `best`."""
        if best is None or self.rule.on_excluded is OnExcluded.NEXT:
            return best
        end = _last_local(best, self.zone)
        start = max(_local(after, self.zone), end - _DAY)
        for days in range(1, MAX_SHIFT_DAYS + 1):
            stop = instant_of(end + days * _DAY, self.zone)
            if self.rule.is_open_between(instant_of(start + days * _DAY, self.zone), stop):
                return stop
        return best + _MAX_DISTANCE

    def _cursor_after(self, time: datetime) -> datetime | None:
        """Return the cursor after a time without a replacement, or None if none follows.

        The cursor passes the part of a long excluded period that has no open day near enough.
        """
        rule = self.rule
        opening = rule.next_opening(time)
        if rule.on_excluded is OnExcluded.NEXT:
            return None if opening is None else max(time, opening - _MAX_DISTANCE - _RESOLUTION)
        earliest = time - _MAX_DISTANCE
        if rule.excluding(earliest) is None:
            return time
        end = rule.next_opening(earliest)
        if end is not None and end <= time:
            return time
        return None if opening is None else opening - _RESOLUTION


def _local(at: datetime, zone: ZoneInfo) -> datetime:
    return at.astimezone(zone).replace(tzinfo=None, fold=0)


def _last_local(at: datetime, zone: ZoneInfo) -> datetime:
    """Return a local time that is not before the local time of an instant up to `at`."""
    zoned = at.astimezone(zone)
    return zoned.replace(tzinfo=None, fold=0) + zoned.fold * _LONGEST_OVERLAP
