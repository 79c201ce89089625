"""The recurrence of a version: the next scheduled time after a given time. Pure."""

from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from hashlib import sha256
from itertools import islice
from typing import Final, TypeAlias, assert_never
from uuid import UUID
from zoneinfo import ZoneInfo

from harebell.contract.schedule import SchedulingPolicy
from harebell.contract.types import EARLIEST, truncate_ms
from harebell.contract.when import After, AnyOf, At, CronRule, Every, Now, Recurring, When
from harebell.domain.cron import Cron
from harebell.domain.cron.timezones import load_timezone

RESOLUTION: Final = timedelta(milliseconds=1)  # of scheduled times


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


Recurrence: TypeAlias = Once | FixedInterval | CronRecurrence | AfterCompletion | AnyOfRecurrence


def _until(time: datetime | None, end: datetime | None) -> datetime | None:
    return None if time is None or (end is not None and time > end) else time


def recurrence_of(policy: SchedulingPolicy, schedule_id: UUID, accepted_at: datetime) -> Recurrence:
    """Return the recurrence of a policy. The base of relative times is `accepted_at`.

    Raise `InvalidCron` or `UnknownTimezone`.
    """
    return _recurrence_of_when(policy.when, schedule_id, accepted_at)


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


def next_times(recurrence: Recurrence, cursor: datetime, count: int) -> list[datetime]:
    """Return at most `count` times after the cursor."""

    def next_time() -> datetime | None:
        nonlocal cursor
        time = recurrence.next_after(cursor)
        cursor = time or cursor
        return time

    return list(islice(iter(next_time, None), count))
