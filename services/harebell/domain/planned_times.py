"""Planned times: the times that a schedule requires from now on and that have no run yet. Pure.

A property test compares the times with the planning of the ticker.
"""

from collections.abc import Collection, Iterator, Sequence
from datetime import datetime
from itertools import islice
from typing import Final, NamedTuple

from harebell.contract.errors import TooExpensive
from harebell.contract.types import LATEST
from harebell.contract.when import Every
from harebell.domain.planner import plan, remaining_runs
from harebell.domain.recurrence import (
    RESOLUTION,
    AfterCompletion,
    CalendarRecurrence,
    FixedInterval,
    Recurrence,
    initial_cursor,
    is_sequential,
    times_after,
)
from harebell.domain.run_states import Placement, ScheduleState
from harebell.domain.timetables import (
    RECURRENCE_ERRORS,
    DueTimesCache,
    Timetable,
    milliseconds_of,
)

MAX_CATCH_UP_PASSES: Final = 100  # of one schedule, each with at most 100 runs
_NO_PLACEMENT: Final = Placement("", 0, "", "", 0)  # the number of runs does not depend on it


class PlannedSchedule(NamedTuple):
    """The planning state of a schedule, and its timetables in the order of their effective times.

    The first timetable is that of the version in force.
    A tuple, because a refresh creates one for each schedule (decision 57).
    """

    timetables: tuple[Timetable, ...]
    state: ScheduleState
    planned_until: datetime
    next_at: datetime | None
    dispatched: int = 0
    paused_until: datetime | None = None  # the end of a pause, also of the last one
    awaited_run: datetime | None = None
    skipped_times: Collection[datetime] = ()
    open_runs: Collection[datetime] = ()


class PlannedSpan(NamedTuple):
    """The scheduled times of one version in (after, until], while the version is in force.

    At most `limit` of the times get a run.
    `caught_up` contains the due times [ms since the epoch] of runs whose times have passed, and
    each of them is `after` or, with jitter or a blackout, later.
    With `is_upper_bound`, the ends of runs decide which of the times get a run.
    A tuple for the same reason (decision 57).
    """

    timetable: Timetable
    recurrence: Recurrence
    after: datetime
    until: datetime
    limit: int | None = None
    caught_up: Sequence[int] = ()
    skipped_times: Collection[datetime] = ()
    open_runs: Collection[datetime] = ()
    is_upper_bound: bool = False

    def due_times(self, cache: DueTimesCache) -> Sequence[int]:
        """Return the due times of the planned runs [ms since the epoch], without `caught_up`.

        The order is that of the scheduled times. A sequence without delays is therefore sorted.
        """
        due = cache.due_times(self.timetable, self.recurrence, after=self.after, until=self.until)
        if not self.skipped_times and not self.open_runs:
            return due if self.limit is None else due[: self.limit]
        return list(self._omit_known(due))

    def excluding_calendars(self, cache: DueTimesCache) -> Iterator[str]:
        """Yield the name of a calendar for each of the times that it excludes, moved or not."""
        if isinstance(self.recurrence, CalendarRecurrence) and self.after < self.until:
            yield from cache.excluding_calendars(
                self.recurrence, after=self.after, until=self.until
            )

    def holding_calendars(self, cache: DueTimesCache) -> Iterator[str]:
        """Yield the name of a calendar for each time whose start it holds back.

        The starts of a sequential schedule depend on the ends of runs and are not known.
        """
        calendars = self.timetable.policy.calendars
        is_estimate = self.recurrence is not self.timetable.recurrence
        if calendars is None or not calendars.blackout or is_estimate or self.after >= self.until:
            return
        names = cache.holding_calendars(self.timetable, after=self.after, until=self.until)
        yield from islice(names, self.limit)

    def count(self, cache: DueTimesCache) -> int:
        """Return the number of runs that count towards `times`."""
        return len(self.caught_up) + len(self._replace(open_runs=()).due_times(cache))

    def _omit_known(self, due: Sequence[int]) -> Iterator[int]:
        """Yield the due times without skipped times and without times that have a run.

        A skipped time does not count towards `times`, and a run does.
        """
        skipped = {milliseconds_of(time) for time in self.skipped_times}
        known = {milliseconds_of(time) for time in self.open_runs}
        remaining = len(due) if self.limit is None else self.limit
        for time, due_at in zip(self._scheduled_times(due), due, strict=True):
            if time in skipped:
                continue
            if remaining == 0:
                return
            remaining -= 1
            if time not in known:
                yield due_at

    def _scheduled_times(self, due: Sequence[int]) -> Iterator[int]:
        if not self.timetable.can_delay:
            yield from due
            return
        times = times_after(self.recurrence, self.after)
        yield from (milliseconds_of(each) for each in islice(times, len(due)))


def planned_spans(
    schedule: PlannedSchedule, *, now: datetime, until: datetime, cache: DueTimesCache
) -> list[PlannedSpan]:
    """Return the times up to `until` that the ticker has not planned yet, by version.

    A paused schedule continues at `paused_until`, and its catch-up policy decides about the times
    of the pause. A schedule in any other state than active waits for its pending version.
    """
    if schedule.next_at is None and schedule.awaited_run is None:
        return []
    begin, state = now, schedule.state
    if state is ScheduleState.PAUSED and schedule.paused_until is not None:
        begin, state = max(now, schedule.paused_until), ScheduleState.ACTIVE
    if state is ScheduleState.DELETED or begin > until:
        return []
    spans: list[PlannedSpan] = []
    cursor, dispatched = schedule.planned_until, schedule.dispatched
    for index, timetable in enumerate(schedule.timetables):
        if index:
            if timetable.since > until:
                break
            start = initial_cursor(timetable.recurrence, timetable.since)
            has_same_times = timetable.anchor == schedule.timetables[index - 1].anchor
            cursor = max(start, cursor) if has_same_times else start
            before = spans[-1].count(cache) if spans else 0
            dispatched = dispatched + before if has_same_times else 0
        elif state is not ScheduleState.ACTIVE:
            continue
        later = schedule.timetables[index + 1 : index + 2]
        spans += _span(
            timetable,
            schedule,
            cursor=cursor,
            dispatched=dispatched,
            awaited=None if index else schedule.awaited_run,
            begin=max(begin, timetable.since - RESOLUTION) if index else begin,
            end=min(until, later[0].since - RESOLUTION) if later else until,
        )
    return spans


def _span(
    timetable: Timetable,
    schedule: PlannedSchedule,
    *,
    cursor: datetime,
    dispatched: int,
    awaited: datetime | None,
    begin: datetime,
    end: datetime,
) -> Iterator[PlannedSpan]:
    """Yield the times of one version after `begin`, with the runs that are late then.

    Yield nothing for a recurrence that raises an error, which the ticker reports. Raise
    `TooExpensive` if the caller allows no further search.
    """
    recurrence, policy = timetable.recurrence, timetable.policy
    caught_up: Sequence[int] = ()
    counted = dispatched
    try:
        if isinstance(recurrence, AfterCompletion):
            recurrence, caught_up = _shortest_sequence(
                timetable, recurrence, cursor, awaited=awaited, begin=begin
            )
            counted += len(caught_up)
        elif awaited is None:
            first = recurrence.next_after(cursor)
            if first is not None and first <= begin and first <= end:
                caught_up, counted, cursor = _late_runs(
                    timetable, schedule, cursor=cursor, dispatched=dispatched, now=begin, end=end
                )
    except TooExpensive:
        raise
    except RECURRENCE_ERRORS:
        return
    yield PlannedSpan(
        timetable=timetable,
        recurrence=recurrence,
        after=max(cursor, begin),
        until=end,
        limit=remaining_runs(policy, counted),
        caught_up=caught_up,
        skipped_times=schedule.skipped_times,
        open_runs=schedule.open_runs,
        is_upper_bound=is_sequential(policy),
    )


def _shortest_sequence(
    timetable: Timetable,
    recurrence: AfterCompletion,
    cursor: datetime,
    *,
    awaited: datetime | None,
    begin: datetime,
) -> tuple[FixedInterval, Sequence[int]]:
    """Return the times of runs that take no time, and the due times of runs that are late.

    Longer runs move every later time, so no sequence has more times.
    """
    every = timetable.policy.when.every if isinstance(timetable.policy.when, Every) else RESOLUTION
    if awaited is not None:
        return FixedInterval(max(awaited, begin) + every, every, recurrence.end), ()
    first = recurrence.next_after(cursor)
    if first is None or first > begin:
        return FixedInterval(first or LATEST, every, recurrence.end), ()
    return FixedInterval(begin + every, every, recurrence.end), (milliseconds_of(begin),)


def _late_runs(
    timetable: Timetable,
    schedule: PlannedSchedule,
    *,
    cursor: datetime,
    dispatched: int,
    now: datetime,
    end: datetime,
) -> tuple[Sequence[int], int, datetime]:
    """Apply the catch-up policy at `now`.

    Return the due times of the runs, the number of runs that count towards `times`, and the cursor.
    """
    until = min(now, end)
    due: list[int] = []
    for _ in range(MAX_CATCH_UP_PASSES):
        result = plan(
            timetable.recurrence,
            timetable.policy,
            timetable.schedule_id,
            placement=_NO_PLACEMENT,
            cursor=cursor,
            dispatched=dispatched,
            now=now,
            until=until,
            skipped_times=schedule.skipped_times,
            open_runs=schedule.open_runs,
            resumed_at=schedule.paused_until,
        )
        due += [
            milliseconds_of(max(run.due_at, now))
            for run in result.runs
            if run.scheduled_for not in schedule.open_runs
        ]
        dispatched += len(result.runs) + len(result.already_staged)
        cursor = result.planned_until
        is_complete = result.next_at is None or result.next_at > until
        if is_complete or is_sequential(timetable.policy):
            break
    return due, dispatched, cursor
