"""The recurrence of a version: its next scheduled time, by its calendars. Pure."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from functools import lru_cache, partial
from hashlib import sha256
from itertools import islice
from typing import Final, TypeAlias, assert_never
from uuid import UUID
from zoneinfo import ZoneInfo

from harebell.contract.calendar import WEEKDAYS, PinnedCalendar, parse_days
from harebell.contract.errors import InvalidInput
from harebell.contract.policy import OnExcluded
from harebell.contract.schedule import SchedulingPolicy
from harebell.contract.types import EARLIEST, LATEST, truncate_ms
from harebell.contract.when import After, AnyOf, At, CronRule, Every, Now, Recurring, When
from harebell.domain.calendars import (
    Calendar,
    CalendarRule,
    DayRange,
    ExcludedTime,
    KeptTime,
    ShiftedTime,
    WeeklyWindow,
    decide_time,
    is_on_open_day,
    next_open_day,
)
from harebell.domain.cron import Cron
from harebell.domain.cron.timezones import load_timezone
from harebell.domain.moved_times import MovedTimes

MAX_CACHED_CALENDARS: Final = 500  # calendars, which many schedules share
MAX_RULE_SEARCHES: Final = 1_000  # of all rules together, in one search for an open time
RESOLUTION: Final = timedelta(milliseconds=1)  # of scheduled times


def calendar_rule(policy: SchedulingPolicy) -> CalendarRule | None:
    """Return the rule of the pinned calendars, or None if they decide no scheduled time."""
    names = policy.calendars
    if names is None or not names.decides_times:
        return None
    pinned = _pinned_by_name(policy)
    return CalendarRule(
        exclude=calendars_of(_named(pinned, names.exclude)),
        include=calendars_of(_named(pinned, names.include)),
        on_excluded=names.on_excluded,
        open_day=names.open_day,
    )


def blackouts_of(policy: SchedulingPolicy) -> tuple[Calendar, ...]:
    """Return the pinned calendars that hold back starts, in the order of the schedule."""
    names = policy.calendars
    if names is None or not names.blackout:
        return ()
    return calendars_of(_named(_pinned_by_name(policy), names.blackout))


def calendars_of(pinned: Iterable[PinnedCalendar]) -> tuple[Calendar, ...]:
    """Return the calendars of their contents, which a cache keeps."""
    return tuple(_calendar(each.model_dump_json()) for each in pinned)


def _pinned_by_name(policy: SchedulingPolicy) -> Mapping[str, PinnedCalendar]:
    return {each.name: each for each in policy.pinned_calendars}


def _named(pinned: Mapping[str, PinnedCalendar], names: Sequence[str]) -> list[PinnedCalendar]:
    missing = [name for name in names if name not in pinned]
    if missing:
        reason = f"The calendar {missing[0]} must be pinned, and the definition lacks its content."
        raise InvalidInput(reason, field="calendars", code="unknown_calendar")
    return [pinned[name] for name in names]


@lru_cache(MAX_CACHED_CALENDARS)
def _calendar(pinned_json: str) -> Calendar:
    pinned = PinnedCalendar.model_validate_json(pinned_json)
    return Calendar.create(
        pinned.name,
        load_timezone(pinned.timezone),
        days=[DayRange(*parse_days(each)) for each in pinned.days],
        windows=[
            WeeklyWindow(
                frozenset(WEEKDAYS.index(day) for day in each.weekdays),
                time.fromisoformat(each.from_),
                time.fromisoformat(each.to),
            )
            for each in pinned.weekly
        ],
    )


@dataclass(frozen=True, slots=True)
class Once:
    """A recurrence with exactly one scheduled time."""

    at: datetime

    def next_after(self, after: datetime) -> datetime | None:
        return self.at if after < self.at else None


@dataclass(frozen=True, slots=True)
class FixedInterval:
    """The times anchor + k * every. The anchor is the base of each time, so no drift occurs."""

    anchor: datetime
    every: timedelta
    end: datetime | None

    def next_after(self, after: datetime) -> datetime | None:
        k = max(0, (after - self.anchor) // self.every + 1)
        return _until(self.anchor + k * self.every, self.end)


@dataclass(frozen=True, slots=True)
class CronRecurrence:
    """The times of a cron expression between inclusive bounds."""

    cron: Cron
    start: datetime | None
    end: datetime | None

    def next_after(self, after: datetime) -> datetime | None:
        if self.start is not None:
            after = max(after, self.start - RESOLUTION)
        return _until(self.cron.next_after(after), self.end)


@dataclass(frozen=True, slots=True)
class AfterCompletion:
    """A fixed time after the end of the previous run. The cursor contains that time."""

    first: datetime
    end: datetime | None

    def next_after(self, after: datetime) -> datetime | None:
        return _until(max(self.first, after + RESOLUTION), self.end)


@dataclass(frozen=True, slots=True)
class AnyOfRecurrence:
    """The times of all members, each once."""

    members: tuple["Recurrence", ...]
    start: datetime | None
    end: datetime | None

    def next_after(self, after: datetime) -> datetime | None:
        if self.start is not None:
            after = max(after, self.start - RESOLUTION)
        times = (member.next_after(after) for member in self.members)
        return _until(min((time for time in times if time is not None), default=None), self.end)


def spend_freely() -> None:
    """Allow a search for a scheduled time. Another function may raise an error instead."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CalendarRecurrence:
    """The times of another recurrence that no calendar excludes, and the moved times.

    `zone` is the time zone of the schedule, in which a moved time keeps its local time.
    `spend` is called before each search, which may need many milliseconds, and may raise.
    """

    base: "Recurrence"
    rule: CalendarRule
    zone: ZoneInfo
    spend: Callable[[], None] = field(default=spend_freely, compare=False, repr=False)

    def next_after(self, after: datetime) -> datetime | None:
        """Return the next open time, or None after `MAX_RULE_SEARCHES` for excluded times."""
        return self.search(after, self.moved_times())

    def moved_times(self) -> MovedTimes:
        """Return the moved times, for one search or for the searches of consecutive times."""
        return MovedTimes(times=self.base, rule=self.rule, zone=self.zone)

    def search(self, after: datetime, moved: MovedTimes) -> datetime | None:
        """Return the next open time. `moved` remembers what earlier searches have examined."""
        self.spend()
        time = self._next_kept(after)
        if self.rule.on_excluded is OnExcluded.SKIP:
            return time
        return _until(moved.next_after(after, time), end=None)

    def _next_kept(self, after: datetime) -> datetime | None:
        """Return the first time after `after` that no calendar excludes."""
        cursor = after
        for _ in range(MAX_RULE_SEARCHES // _number_of_rules(self.base)):
            time = self.base.next_after(cursor)
            if time is None:
                return None
            if is_on_open_day(self.rule, time, self.zone):
                opening = self.rule.open_from(time)
            else:
                opening = next_open_day(self.rule, time, self.zone)
            if opening is None or opening == time:
                return opening
            cursor = opening - RESOLUTION
        return None

    def exclusion_at(self, time: datetime) -> ShiftedTime | ExcludedTime | None:
        """Return the decision about an excluded time of the other recurrence, or else None."""
        if self.rule.excluding(time) is None or not recurs_at(self.base, time):
            return None
        decision = decide_time(self.rule, time, self.zone)
        return None if isinstance(decision, KeptTime) else decision

    def is_on_other_day(self, time: datetime) -> bool:
        """Return whether `time` is open and not on the wanted open day of its month."""
        is_open = self.rule.excluding(time) is None and recurs_at(self.base, time)
        return is_open and not is_on_open_day(self.rule, time, self.zone)

    def times_moved_to(self, time: datetime) -> list[tuple[datetime, str]]:
        """Return the excluded times that `time` replaces, each with its calendar."""
        return list(self.moved_times().origins_of(time))

    def first_excluded(self, after: datetime, before: datetime) -> tuple[datetime, str] | None:
        """Return the first time after `after` and its calendar if it is excluded without a move."""
        time = self.base.next_after(after)
        if time is None or time >= before:
            return None
        decision = decide_time(self.rule, time, self.zone)
        return (time, decision.calendar) if isinstance(decision, ExcludedTime) else None


Recurrence: TypeAlias = (
    Once | FixedInterval | CronRecurrence | AfterCompletion | AnyOfRecurrence | CalendarRecurrence
)


def _number_of_rules(recurrence: Recurrence) -> int:
    return len(recurrence.members) if isinstance(recurrence, AnyOfRecurrence) else 1


def _until(time: datetime | None, end: datetime | None) -> datetime | None:
    """Return the time, or None after the end. No message can contain a time from `LATEST` on."""
    if time is None or time >= LATEST or (end is not None and time > end):
        return None
    return time


def recurrence_of(
    policy: SchedulingPolicy,
    schedule_id: UUID,
    accepted_at: datetime,
    *,
    spend: Callable[[], None] = spend_freely,
) -> Recurrence:
    """Return the recurrence of a policy. The base of relative times is `accepted_at`.

    With calendars, `spend` is called before each search. Raise `InvalidCron` or `UnknownTimezone`.
    """
    recurrence = _recurrence_of_when(policy.when, schedule_id, accepted_at)
    rule = calendar_rule(policy)
    if rule is None:
        return recurrence
    zone = policy.when.timezone if isinstance(policy.when, Recurring) else "UTC"
    return CalendarRecurrence(base=recurrence, rule=rule, zone=load_timezone(zone), spend=spend)


def _recurrence_of_when(when: When, schedule_id: UUID, accepted_at: datetime) -> Recurrence:
    match when:
        case Now():
            return Once(accepted_at)
        case At(at=at):
            return Once(at)
        case After(after=after):
            return Once(truncate_ms(accepted_at + after))
        case Every() as rule:
            return _interval_recurrence(rule, schedule_id, accepted_at)
        case CronRule() as rule:
            cron = Cron.parse(
                rule.cron,
                rule.timezone,
                hash_id=schedule_id,
                day_match=rule.day_match,
                dst_gap=rule.dst_gap,
                dst_overlap=rule.dst_overlap,
            )
            return CronRecurrence(cron, *bounds(rule))
        case AnyOf(any_of=rules) as rule:
            members = (_recurrence_of_when(each, schedule_id, accepted_at) for each in rules)
            return AnyOfRecurrence(tuple(members), *bounds(rule))
        case _:
            assert_never(when)


def _interval_recurrence(rule: Every, schedule_id: UUID, accepted_at: datetime) -> Recurrence:
    start, end = bounds(rule)
    if rule.phase == "spread":
        first = _first_spread_time(schedule_id, rule.every, start or accepted_at)
        return FixedInterval(first, rule.every, end)
    first = start or truncate_ms(accepted_at + rule.every)
    is_after_end = rule.from_ == "completion"
    return AfterCompletion(first, end) if is_after_end else FixedInterval(first, rule.every, end)


def phase_of(schedule_id: UUID, every: timedelta) -> timedelta:
    """Return the offset of `phase: spread` within the interval, a hash of the schedule id."""
    digest = sha256(b"phase" + schedule_id.bytes).digest()
    milliseconds = every // RESOLUTION
    return int.from_bytes(digest[:8], "big") % milliseconds * RESOLUTION


def _first_spread_time(schedule_id: UUID, every: timedelta, since: datetime) -> datetime:
    """Return the first time from `since` on with the phase of the schedule.

    The phase counts from a fixed time, so that a later version keeps it.
    """
    origin = EARLIEST + phase_of(schedule_id, every)
    return origin - (origin - since) // every * every


def is_sequential(policy: SchedulingPolicy) -> bool:
    """Return whether the ticker plans a run only after the previous run has ended."""
    when = policy.when
    if isinstance(when, Every) and when.from_ == "completion":
        return True
    return isinstance(when, Recurring) and when.until is not None


def bounds(rule: Recurring) -> tuple[datetime | None, datetime | None]:
    """Return the inclusive bounds. A date is that day in the time zone, with the end day.

    Raise `UnknownTimezone`.
    """
    zone = load_timezone(rule.timezone)
    start, end = rule.start, rule.end
    if start is not None and not isinstance(start, datetime):
        start = _midnight(start, zone)
    if end is not None and not isinstance(end, datetime):
        end = _midnight(end + timedelta(days=1), zone) - RESOLUTION
    return start, end


def _midnight(day: date, zone: ZoneInfo) -> datetime:
    return datetime.combine(day, time(), zone).astimezone(UTC)


def initial_cursor(recurrence: Recurrence, accepted_at: datetime) -> datetime:
    """Return the cursor of a new version. Only a one-shot may have a time before acceptance."""
    if isinstance(recurrence, Once):
        return min(recurrence.at, accepted_at) - RESOLUTION
    return accepted_at - RESOLUTION


def recurs_at(recurrence: Recurrence, time: datetime) -> bool:
    """Return whether the recurrence contains `time`."""
    return recurrence.next_after(time - RESOLUTION) == time


def times_after(
    recurrence: Recurrence, cursor: datetime, *, spend: Callable[[], None] = spend_freely
) -> Iterator[datetime]:
    """Yield the times after the cursor. `spend` is called before each search.

    With calendars, this costs much less than separate searches.
    """
    next_after = recurrence.next_after
    if isinstance(recurrence, CalendarRecurrence):
        next_after = partial(recurrence.search, moved=recurrence.moved_times())
    while True:
        spend()
        time = next_after(cursor)
        if time is None:
            return
        yield time
        cursor = time


def next_times(
    recurrence: Recurrence,
    cursor: datetime,
    count: int,
    *,
    spend: Callable[[], None] = spend_freely,
) -> list[datetime]:
    """Return at most `count` times after the cursor. `spend` is called before each search."""
    return list(islice(times_after(recurrence, cursor, spend=spend), count))
