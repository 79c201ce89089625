"""When a schedule is due: its rule as a table of instants, asked one after the other. Pure."""

from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from itertools import islice
from typing import Final, TypeAlias, assert_never
from uuid import UUID
from zoneinfo import ZoneInfo

from harebell.contract.schedule import SchedulingPolicy
from harebell.contract.types import truncate_ms
from harebell.contract.when import After, AnyOf, At, CronRule, Every, Now, Recurring, When
from harebell.domain.cron import Cron
from harebell.domain.cron.timezones import load_timezone

RESOLUTION: Final = timedelta(milliseconds=1)  # the resolution of instants


@dataclass(frozen=True, slots=True)
class Once:
    at: datetime

    def next_after(self, moment: datetime) -> datetime | None:
        return self.at if moment < self.at else None


@dataclass(frozen=True, slots=True)
class FixedInterval:
    """anchor + k * every: reckoned from the anchor each time, so it cannot drift."""

    anchor: datetime
    every: timedelta
    end: datetime | None

    def next_after(self, moment: datetime) -> datetime | None:
        k = max(0, (moment - self.anchor) // self.every + 1)
        return _until(self.anchor + k * self.every, self.end)


@dataclass(frozen=True, slots=True)
class CronRecurrence:
    cron: Cron
    start: datetime | None
    end: datetime | None

    def next_after(self, moment: datetime) -> datetime | None:
        if self.start is not None:
            moment = max(moment, self.start - RESOLUTION)
        return _until(self.cron.next_after(moment), self.end)


@dataclass(frozen=True, slots=True)
class AfterCompletion:
    """So long after the run before has ended: the cursor says when that is."""

    first: datetime
    end: datetime | None

    def next_after(self, moment: datetime) -> datetime | None:
        return _until(max(self.first, moment + RESOLUTION), self.end)


@dataclass(frozen=True, slots=True)
class AnyOfRecurrence:
    """Every instant of any member, once."""

    members: tuple["Recurrence", ...]
    start: datetime | None
    end: datetime | None

    def next_after(self, moment: datetime) -> datetime | None:
        if self.start is not None:
            moment = max(moment, self.start - RESOLUTION)
        instants = (member.next_after(moment) for member in self.members)
        return _until(min((t for t in instants if t is not None), default=None), self.end)


Recurrence: TypeAlias = Once | FixedInterval | CronRecurrence | AfterCompletion | AnyOfRecurrence


def _until(instant: datetime | None, end: datetime | None) -> datetime | None:
    return None if instant is None or (end is not None and instant > end) else instant


def recurrence_of(terms: SchedulingPolicy, schedule_id: UUID, accepted_at: datetime) -> Recurrence:
    """Relative times are reckoned from acceptance. Raises `InvalidCron`, `UnknownTimezone`."""
    return _table(terms.when, schedule_id, accepted_at)


def _table(when: When, schedule_id: UUID, accepted_at: datetime) -> Recurrence:
    match when:
        case Now():
            return Once(accepted_at)
        case At(at=at):
            return Once(at)
        case After(after=after):
            return Once(truncate_ms(accepted_at + after))
        case Every(every=every) as rule:
            start, end = bounds(rule)
            first = start or truncate_ms(accepted_at + every)
            after_end = rule.from_ == "completion"
            return AfterCompletion(first, end) if after_end else FixedInterval(first, every, end)
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
            members = (_table(each, schedule_id, accepted_at) for each in rules)
            return AnyOfRecurrence(tuple(members), *bounds(rule))
        case _:
            assert_never(when)


def is_sequential(terms: SchedulingPolicy) -> bool:
    """Whether a run is only planned when the one before has ended."""
    when = terms.when
    if isinstance(when, Every) and when.from_ == "completion":
        return True
    return isinstance(when, Recurring) and when.until is not None


def bounds(rule: Recurring) -> tuple[datetime | None, datetime | None]:
    """Inclusive. A day means that day in the rule's zone, the end day included.

    Raises `UnknownTimezone`.
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


def initial_cursor(table: Recurrence, accepted_at: datetime) -> datetime:
    """What lies before acceptance is not owed, but for the one instant of a one-shot."""
    if isinstance(table, Once):
        return min(table.at, accepted_at) - RESOLUTION
    return accepted_at - RESOLUTION


def next_times(table: Recurrence, cursor: datetime, count: int) -> list[datetime]:
    """The next few instants, as an acknowledgement tells them."""

    def following() -> datetime | None:
        nonlocal cursor
        instant = table.next_after(cursor)
        cursor = instant or cursor
        return instant

    return list(islice(iter(following, None), count))
