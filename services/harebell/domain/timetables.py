"""Timetables: the parts of versions that decide due times, shared by many schedules. Pure.

One policy and one cron expression often serve thousands of schedules, so each is parsed once.
"""

from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from itertools import takewhile
from typing import Final, NamedTuple
from uuid import UUID

from pydantic import ConfigDict

from harebell.contract.errors import Rejected
from harebell.contract.ids import RunKey
from harebell.contract.schedule import Definition, SchedulingPolicy
from harebell.contract.when import AnyOf, CronRule, When
from harebell.domain.planner import StartDelays
from harebell.domain.recurrence import (
    CalendarRecurrence,
    FixedInterval,
    Recurrence,
    recurrence_of,
    spend_freely,
    times_after,
)

RECURRENCE_ERRORS: Final = (Rejected, ArithmeticError, ValueError)  # that a recurrence may raise
MAX_POLICIES: Final = 20_000  # distinct policies in memory, such as one for each one-shot time
# The fields of a stored definition that decide no time, or that differ for equal policies.
OMITTED_FIELDS: Final = tuple(
    sorted(
        {
            "key",
            *(
                field.alias or name
                for name, field in Definition.model_fields.items()
                if name not in SchedulingPolicy.model_fields
            ),
        }
    )
)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)


class StoredPolicy(SchedulingPolicy):
    """The policy of a stored definition, which was checked before. Other fields are ignored."""

    model_config = ConfigDict(extra="ignore")


class Timetable(NamedTuple):
    """The part of a version that decides its due times, as a tuple (decision 57)."""

    schedule_id: UUID
    policy: SchedulingPolicy
    recurrence: Recurrence
    since: datetime  # the effective time
    anchor: datetime  # relative times count from here

    @property
    def can_delay(self) -> bool:
        """Return whether a due time may be later than its scheduled time."""
        calendars = self.policy.calendars
        return bool(self.policy.when.jitter) or (calendars is not None and bool(calendars.blackout))


class Timetables:
    """The policies and the recurrences that several timetables share.

    `spend` is called before each search of a schedule with calendars, and may raise.
    """

    def __init__(self, *, spend: Callable[[], None] = spend_freely) -> None:
        self._spend = spend
        self._policies: dict[str, SchedulingPolicy] = {}
        self._recurrences: dict[str, Recurrence] = {}

    def create(
        self, schedule_id: UUID, policy_text: str, *, since: datetime, anchor: datetime
    ) -> Timetable | None:
        """Return the timetable of a stored policy, or None if it cannot be computed."""
        try:
            policy = self._policy(policy_text)
            recurrence = self._recurrences.get(policy_text)
            if recurrence is None:
                recurrence = recurrence_of(policy, schedule_id, anchor, spend=self._spend)
                if _has_shared_times(policy.when):
                    self._recurrences[policy_text] = recurrence
        except RECURRENCE_ERRORS:
            return None
        return Timetable(schedule_id, policy, recurrence, since, anchor)

    def _policy(self, text: str) -> SchedulingPolicy:
        policy = self._policies.get(text)
        if policy is None:
            if len(self._policies) >= MAX_POLICIES:
                self._policies.clear()
                self._recurrences.clear()
            policy = self._policies[text] = StoredPolicy.model_validate_json(text)
        return policy


def _has_shared_times(when: When) -> bool:
    """Return whether neither the schedule id nor the anchor decides the times."""
    match when:
        case CronRule(cron=cron):
            return "H" not in cron.upper()  # the name of a weekday may contain H too
        case AnyOf(any_of=rules):
            return all(_has_shared_times(each) for each in rules)
        case _:
            return False


class _ComputedTimes:
    """The times of one recurrence after `start` and up to `until` [ms since the epoch]."""

    __slots__ = ("calendars", "delays", "due", "is_used", "owner", "start", "times", "until")

    def __init__(self, owner: Recurrence | Timetable, start: int) -> None:
        self.owner = owner  # keeps the id of the entry valid
        self.start = self.until = start
        self.times = array("q")
        self.due = array("q")  # of a timetable that can delay
        self.calendars: list[str | None] = []  # that hold back or exclude each of the times
        self.delays = StartDelays.of(owner.policy) if isinstance(owner, Timetable) else None
        self.is_used = True

    def range_of(self, begin: int, end: int) -> slice:
        """Return the positions of the times in (begin, end]."""
        return slice(bisect_right(self.times, begin), bisect_right(self.times, end))

    def discard_before(self, time: int) -> None:
        """Remove the times up to `time`."""
        count = bisect_right(self.times, time)
        del self.times[:count]
        del self.due[:count]
        del self.calendars[:count]
        self.start = max(self.start, min(time, self.until))


class DueTimesCache:
    """The computed due times of timetables, so that a repeated count computes only new times.

    `computed` counts the times that the cache has computed, each of which needs some microseconds.
    `spend` is called before each of them, and may raise; a later call continues there.
    """

    def __init__(self, *, spend: Callable[[], None] = spend_freely) -> None:
        self._spend = spend
        self._entries: dict[int, _ComputedTimes] = {}
        self._excluded: dict[int, _ComputedTimes] = {}
        self.computed = 0

    def due_times(
        self, timetable: Timetable, recurrence: Recurrence, *, after: datetime, until: datetime
    ) -> Sequence[int]:
        """Return the due times [ms since the epoch] of the scheduled times in (after, until].

        They have the order of their scheduled times. For an interval without delays, they are a
        range, which costs the same for any number of times. So are the estimated times of a
        sequential schedule, without their delays.
        """
        can_delay = timetable.can_delay
        is_estimate = recurrence is not timetable.recurrence
        if isinstance(recurrence, FixedInterval) and (is_estimate or not can_delay):
            return interval_times(recurrence, after, until)
        entry = self._computed(timetable if can_delay else recurrence, after=after, until=until)
        positions = entry.range_of(milliseconds_of(after), milliseconds_of(until))
        return (entry.due if can_delay else entry.times)[positions]

    def holding_calendars(
        self, timetable: Timetable, *, after: datetime, until: datetime
    ) -> Iterator[str]:
        """Yield the calendar of each scheduled time in (after, until] whose start is held back."""
        entry = self._computed(timetable, after=after, until=until)
        positions = entry.range_of(milliseconds_of(after), milliseconds_of(until))
        return (name for name in entry.calendars[positions] if name is not None)

    def excluding_calendars(
        self, recurrence: CalendarRecurrence, *, after: datetime, until: datetime
    ) -> Iterator[str]:
        """Yield the calendar of each excluded time in (after, until], moved or not."""
        begin, end = milliseconds_of(after), milliseconds_of(until)
        entry = _entry_of(self._excluded, recurrence, begin)
        if entry.until < end:
            for time in _times_between(recurrence.base, entry.until, until):
                self._spend()
                self.computed += 1
                calendar = recurrence.rule.excluding(time)
                entry.until = milliseconds_of(time)
                if calendar is not None:
                    entry.times.append(entry.until)
                    entry.calendars.append(calendar.name)
            entry.until = end
        return (name for name in entry.calendars[entry.range_of(begin, end)] if name is not None)

    def discard_before(self, time: datetime) -> None:
        """Remove the times up to `time`, and the entries that nobody used since the last call."""
        cut = milliseconds_of(time)
        for entries in (self._entries, self._excluded):
            unused = [id_ for id_, entry in entries.items() if not entry.is_used]
            for id_ in unused:
                del entries[id_]
            for entry in entries.values():
                entry.is_used = False
                entry.discard_before(cut)

    def _computed(
        self, owner: Timetable | Recurrence, *, after: datetime, until: datetime
    ) -> _ComputedTimes:
        """Return the entry of a timetable or of a recurrence, with the times in (after, until]."""
        entry = _entry_of(self._entries, owner, milliseconds_of(after))
        end = milliseconds_of(until)
        if entry.until < end:
            recurrence = owner.recurrence if isinstance(owner, Timetable) else owner
            for time in _times_between(recurrence, entry.until, until):
                self._spend()
                self.computed += 1
                entry.until = milliseconds_of(time)
                entry.times.append(entry.until)
                if entry.delays is not None and isinstance(owner, Timetable):
                    key = RunKey(time, owner.schedule_id)
                    entry.due.append(milliseconds_of(entry.delays.due_time(key)))
                    entry.calendars.append(entry.delays.blackout_of(key))
            entry.until = end
        return entry


def _entry_of(
    entries: dict[int, _ComputedTimes], owner: Recurrence | Timetable, begin: int
) -> _ComputedTimes:
    """Return the entry of an owner, or a new one if it begins too late."""
    entry = entries.get(id(owner))
    if entry is None or begin < entry.start:
        entry = entries[id(owner)] = _ComputedTimes(owner, begin)
    entry.is_used = True
    return entry


def _times_between(recurrence: Recurrence, after: int, until: datetime) -> Iterator[datetime]:
    return takewhile(lambda time: time <= until, times_after(recurrence, datetime_of(after)))


def interval_times(interval: FixedInterval, after: datetime, until: datetime) -> range:
    """Return the times of an interval in (after, until] [ms since the epoch]."""
    if interval.end is not None:
        until = min(until, interval.end)
    first, last = interval.next_after(after), milliseconds_of(until)
    if first is None:
        return range(0)
    return range(milliseconds_of(first), last + 1, interval.every // _MILLISECOND)


def milliseconds_of(time: datetime) -> int:
    """Return the whole milliseconds since the epoch."""
    return (time - _EPOCH) // _MILLISECOND


def datetime_of(milliseconds: int) -> datetime:
    """Return the instant of some milliseconds since the epoch."""
    return _EPOCH + milliseconds * _MILLISECOND
