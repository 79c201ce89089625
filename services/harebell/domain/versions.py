"""Versions: the time in which a version of a schedule is in force, and its scheduled times."""

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cached_property
from itertools import islice
from uuid import UUID
from zoneinfo import ZoneInfo

from harebell.contract.schedule import SchedulingPolicy
from harebell.contract.types import EARLIEST, LATEST, ceil_ms
from harebell.contract.when import Every, Recurring
from harebell.domain.planner import remaining_runs
from harebell.domain.recurrence import (
    RESOLUTION,
    AfterCompletion,
    FixedInterval,
    Recurrence,
    initial_cursor,
    recurrence_of,
    recurs_at,
    spend_freely,
    times_after,
)


@dataclass(frozen=True, kw_only=True)
class VersionWindow:
    """A version of a schedule, the time in which it is in force, and its planned part.

    The ticker has decided about the scheduled times after `planned_from` and up to `planned_until`.
    `is_active` is false for a version that was never in force.
    """

    schedule_id: UUID
    policy: SchedulingPolicy
    since: datetime  # the effective time
    until: datetime | None = None  # the effective time of the next version, exclusive
    number: int = 1
    is_active: bool = True
    anchor: datetime | None = None  # relative times count from here, or else from `since`
    dispatched: int = 0  # runs that count towards `times`
    planned_from: datetime | None = None  # exclusive, or else the start of the recurrence
    planned_until: datetime = EARLIEST  # inclusive
    spend: Callable[[], None] = spend_freely  # is called before each search, and may raise

    @cached_property
    def recurrence(self) -> Recurrence:
        """Return the recurrence. Raise `InvalidCron` or `UnknownTimezone`."""
        return recurrence_of(self.policy, self.schedule_id, self.anchor_time)

    @cached_property
    def start(self) -> datetime:
        """Return the time after which the scheduled times of the version begin."""
        return self.planned_from or initial_cursor(self.recurrence, self.since)

    @property
    def anchor_time(self) -> datetime:
        return self.anchor or self.since

    @property
    def timezone(self) -> ZoneInfo:
        when = self.policy.when
        return ZoneInfo(when.timezone if isinstance(when, Recurring) else "UTC")

    def next_after(self, time: datetime) -> datetime | None:
        """Return the first scheduled time after `time` at which the version is in force."""
        self.spend()
        found = self.recurrence.next_after(max(time, self.start))
        return None if found is None or self._has_ended(found) else found

    def times_after(self, time: datetime) -> Iterator[datetime]:
        """Yield the scheduled times after `time` at which the version is in force.

        A run takes no time if the recurrence is from completion.
        """
        cursor, recurrence, when = max(time, self.start), self.recurrence, self.policy.when
        if isinstance(recurrence, AfterCompletion) and isinstance(when, Every):
            first = recurrence.next_after(cursor)
            recurrence = FixedInterval(first or LATEST, when.every, recurrence.end)
        for found in times_after(recurrence, cursor, spend=self.spend):
            if self._has_ended(found):
                return
            yield found

    def last_time_until(self, time: datetime) -> datetime | None:
        """Return the last scheduled time up to `time`.

        A binary search finds the time, because a recurrence only searches forward.
        """
        low, high = self.start, time
        if isinstance(self.recurrence, AfterCompletion) or not self._has_time(low, high):
            return None
        while high - low > RESOLUTION:
            middle = low + (high - low) // 2
            low, high = (middle, high) if self._has_time(middle, time) else (low, middle)
        return self.next_after(low)

    def includes(self, time: datetime) -> bool:
        """Return whether `time` is a scheduled time at which the version is in force."""
        return self.next_after(time - RESOLUTION) == time

    def recurs_at(self, time: datetime) -> bool:
        """Return whether the recurrence contains `time`, in force or not."""
        return recurs_at(self.recurrence, time)

    def decided_times(self, since: datetime, until: datetime) -> Iterator[datetime]:
        """Yield the scheduled times from `since` up to, without, `until` that are decided.

        A recurrence from completion yields nothing, because the end of a run sets the next time.
        """
        if isinstance(self.recurrence, AfterCompletion):
            return
        # A bound from a clock has microseconds. The times have milliseconds.
        time = self.next_after(ceil_ms(since) - RESOLUTION)
        while time is not None and time <= self.planned_until and time < until:
            yield time
            time = self.next_after(time)

    def continuing(self, previous: "VersionWindow | None") -> "VersionWindow":
        """Return the window with the dispatched runs of a previous version with the same anchor."""
        if previous is None or previous.anchor_time != self.anchor_time:
            return self
        return replace(self, dispatched=max(previous.dispatched, self.dispatched))

    def with_dispatched(
        self, times: Sequence[datetime], skipped_times: Collection[datetime]
    ) -> "VersionWindow":
        """Return the window after the dispatch of the runs of `times`."""
        added = sum(each > self.planned_until and each not in skipped_times for each in times)
        return replace(self, dispatched=self.dispatched + added)

    def next_times(
        self, after: datetime, count: int, skipped_times: Collection[datetime] = ()
    ) -> list[datetime]:
        """Return the next `count` scheduled times, including skipped times.

        Skipped times do not count towards `times`.
        """
        return list(islice(_times_after(self, after, skipped_times), count))

    def _has_ended(self, time: datetime) -> bool:
        return self.until is not None and time >= self.until

    def _has_time(self, after: datetime, until: datetime) -> bool:
        found = self.next_after(after)
        return found is not None and found <= until


def _times_after(
    window: VersionWindow, after: datetime, skipped_times: Collection[datetime]
) -> Iterator[datetime]:
    remaining = remaining_runs(window.policy, window.dispatched)
    for time in window.times_after(after):
        if remaining == 0 and time > window.planned_until:
            return
        if remaining is not None and time > window.planned_until and time not in skipped_times:
            remaining -= 1
        yield time
