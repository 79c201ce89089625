"""The planner: the runs that a recurrence requires between a cursor and the horizon."""

from collections.abc import Collection
from datetime import UTC, datetime, time, timedelta
from hashlib import sha256
from typing import Final, NamedTuple
from uuid import UUID
from zoneinfo import ZoneInfo

from harebell.contract.ids import RunKey
from harebell.contract.policy import CatchUpMode
from harebell.contract.schedule import SchedulingPolicy
from harebell.contract.types import truncate_ms
from harebell.contract.when import Recurring
from harebell.domain.calendars import Calendar, blackout_at, end_of_blackout
from harebell.domain.recurrence import (
    RESOLUTION,
    AfterCompletion,
    CalendarRecurrence,
    Once,
    Recurrence,
    blackouts_of,
    is_sequential,
    times_after,
)
from harebell.domain.run_states import NewRun, Placement, Reason, SkippedRange

MISSED_AFTER: Final = timedelta(seconds=60)  # the catch-up policy decides about a later time
MAX_RUNS: Final = 100  # of one schedule in one pass
MAX_STEPS: Final = 1_000  # scheduled times examined in one pass
MAX_CALENDAR_STEPS: Final = 200  # with calendars, because each step costs up to some milliseconds


class PlanningResult(NamedTuple):
    """The runs and skipped ranges of one pass, as a tuple for each schedule (decision 20).

    Every scheduled time up to `planned_until` is decided, and `next_at` is None if none is left.
    `already_staged` has the passed times with a run, which count if it was dispatched.
    """

    runs: tuple[NewRun, ...]
    skipped: tuple[SkippedRange, ...]
    planned_until: datetime
    next_at: datetime | None
    already_staged: tuple[datetime, ...] = ()


class StartDelays(NamedTuple):
    """The delays between the scheduled time of a run and its due time: the jitter, then blackouts.

    A tuple, because each pass creates one for each schedule (decision 20).
    """

    jitter: timedelta | None
    blackouts: tuple[Calendar, ...]

    @staticmethod
    def of(policy: SchedulingPolicy) -> "StartDelays":
        return StartDelays(policy.when.jitter, blackouts_of(policy))

    @property
    def can_delay(self) -> bool:
        return bool(self.jitter or self.blackouts)

    def due_time(self, key: RunKey) -> datetime:
        """Return the due time, which is the same on every call."""
        return self.hold_back(self.with_jitter(key))

    def with_jitter(self, key: RunKey) -> datetime:
        """Return the scheduled time plus the jitter."""
        if not self.jitter:
            return key.scheduled_for
        return truncate_ms(key.scheduled_for + self.jitter * _jitter_fraction(key))

    def hold_back(self, start: datetime) -> datetime:
        """Return a start, or the end of the blackouts that hold it back."""
        return end_of_blackout(self.blackouts, start) if self.blackouts else start

    def blackout_of(self, key: RunKey) -> str | None:
        """Return the name of the calendar that holds back the start of a run, or None."""
        if not self.blackouts:
            return None
        holding = blackout_at(self.blackouts, self.with_jitter(key))
        return None if holding is None else holding.name


def plan(
    recurrence: Recurrence,
    policy: SchedulingPolicy,
    schedule_id: UUID,
    *,
    placement: Placement,
    cursor: datetime,
    dispatched: int,
    now: datetime,
    until: datetime,
    skipped_times: Collection[datetime] = (),
    open_runs: Collection[datetime] = (),
    resumed_at: datetime | None = None,
) -> PlanningResult:
    """Return at most `MAX_RUNS` runs after `cursor` and up to `until`.

    `now` decides which times are missed, and so are all times before `resumed_at`, the end of a
    pause.
    A sequential schedule gets one run at a time.
    `skipped_times` contains the times that a user skipped.
    `open_runs` contains the times that have a run already.
    """
    delays = StartDelays.of(policy)
    all_times, following = _times_between(recurrence, cursor, until)
    times = [each for each in all_times if each not in skipped_times]
    missed = _missed(recurrence, times, _missed_before(now, resumed_at))
    current = times[len(missed) :]
    has_more_missed = not current and len(all_times) == _max_steps(recurrence)
    caught_up, dropped, decided_until = _catch_up(policy, missed, now, has_more=has_more_missed)
    candidates = [
        _new_run(policy, delays, RunKey(each, schedule_id), placement=placement)
        for each in (*caught_up, *current)
    ]
    in_time, expired = _split_expired(candidates, now)
    passed_until = decided_until if has_more_missed and missed else max([cursor, *all_times[-1:]])
    if expired and isinstance(recurrence, AfterCompletion):
        passed_until = max(passed_until, truncate_ms(now) - RESOLUTION)  # the next is due now
    already_staged = _already_staged(times, in_time, open_runs=open_runs, passed_until=passed_until)
    remaining = remaining_runs(policy, dispatched + len(already_staged))
    runs = in_time[: _max_runs(policy, remaining)]
    is_exhausted = remaining is not None and len(runs) == remaining
    planned_until = passed_until
    if len(runs) < len(in_time):
        last_run = (run.scheduled_for for run in runs[-1:])
        planned_until = max([cursor, *already_staged[-1:], *last_run])
    next_at = None
    if not is_exhausted:
        later = [each for each in (*all_times, following) if each is None or each > planned_until]
        # The end of an expired run from completion is later than each of these times.
        next_at = later[0] if later else recurrence.next_after(planned_until)
    ranges = [(dropped, Reason.MISSED), (expired, Reason.EXPIRED)]
    ranges += [
        ([each], Reason.MANUAL)
        for each in all_times
        if each in skipped_times and each <= planned_until
    ]
    skipped = tuple(
        _skipped_range(each, reason, schedule_id, placement=placement)
        for each, reason in ranges
        if each
    )
    return PlanningResult(tuple(runs), skipped, planned_until, next_at, already_staged)


def catch_up(
    policy: SchedulingPolicy,
    schedule_id: UUID,
    times: Collection[datetime],
    *,
    placement: Placement,
    now: datetime,
    resumed_at: datetime | None,
) -> tuple[list[NewRun], list[SkippedRange]]:
    """Apply the catch-up policy to times that no recurrence returns again."""
    delays = StartDelays.of(policy)
    ordered = sorted(times)
    before = _missed_before(now, resumed_at)
    missed = [each for each in ordered if each < before]
    caught_up, dropped, _ = _catch_up(policy, missed, now, has_more=False)
    candidates = [
        _new_run(policy, delays, RunKey(each, schedule_id), placement=placement)
        for each in (*caught_up, *ordered[len(missed) :])
    ]
    in_time, expired = _split_expired(candidates, now)
    ranges = [(dropped, Reason.MISSED), (expired, Reason.EXPIRED)]
    return in_time, [
        _skipped_range(each, reason, schedule_id, placement=placement)
        for each, reason in ranges
        if each
    ]


def _times_between(
    recurrence: Recurrence, cursor: datetime, until: datetime
) -> tuple[list[datetime], datetime | None]:
    """Return at most `_max_steps` times up to `until`, and the time that follows them."""
    times: list[datetime] = []
    found = times_after(recurrence, cursor)
    following = next(found, None)
    max_times = _max_steps(recurrence)
    while following is not None and following <= until and len(times) < max_times:
        times.append(following)
        following = next(found, None)
    return times, following


def _max_steps(recurrence: Recurrence) -> int:
    """Return the maximum number of times that one pass examines.

    A recurrence from completion would otherwise return each millisecond.
    """
    if isinstance(recurrence, AfterCompletion):
        return 1
    return MAX_CALENDAR_STEPS if isinstance(recurrence, CalendarRecurrence) else MAX_STEPS


def _missed_before(now: datetime, resumed_at: datetime | None) -> datetime:
    """Return the first time that is not missed. No time of a pause is only a little late."""
    late = now - MISSED_AFTER
    return late if resumed_at is None else max(late, resumed_at)


def _missed(recurrence: Recurrence, times: list[datetime], before: datetime) -> list[datetime]:
    """Return the missed times. A single time is never missed, because no later time replaces it."""
    if isinstance(recurrence, Once | AfterCompletion):
        return []
    return [each for each in times if each < before]


def _catch_up(
    policy: SchedulingPolicy, missed: list[datetime], now: datetime, *, has_more: bool
) -> tuple[list[datetime], list[datetime], datetime]:
    """Return the missed times that get a run, the dropped times, and the last decided time.

    With `has_more`, the pass has not seen every missed time.
    The last few times then stay undecided, because they may be among the latest `max` times.
    """
    if not missed:
        return [], [], datetime.min.replace(tzinfo=UTC)
    rule = policy.catch_up
    max_runs = {CatchUpMode.NONE: 0, CatchUpMode.ONE: 1, CatchUpMode.ALL: rule.max}[rule.mode]
    latest = missed[max(0, len(missed) - max_runs) :] if max_runs else []
    if has_more:
        dropped = missed[: len(missed) - max_runs]
        return [], dropped, dropped[-1]
    caught_up = [each for each in latest if _can_catch_up(policy, each, now)]
    return caught_up, missed[: len(missed) - len(caught_up)], missed[-1]


def _can_catch_up(policy: SchedulingPolicy, missed: datetime, now: datetime) -> bool:
    """Apply `window` and `not_after`, which both accept the later of two missed times longer.

    The accepted times are therefore the last ones.
    """
    rule = policy.catch_up
    if now - missed > rule.window:
        return False
    if rule.not_after is None:
        return True
    when = policy.when
    timezone = ZoneInfo(when.timezone if isinstance(when, Recurring) else "UTC")
    return now < _next_time_of_day(missed, time.fromisoformat(rule.not_after), timezone)


def _next_time_of_day(after: datetime, time_of_day: time, timezone: ZoneInfo) -> datetime:
    local = after.astimezone(timezone)
    is_today = time_of_day > local.time()
    day = local.date() if is_today else local.date() + timedelta(days=1)
    return datetime.combine(day, time_of_day, timezone).astimezone(UTC)


def _split_expired(runs: list[NewRun], now: datetime) -> tuple[list[NewRun], list[datetime]]:
    """Return the runs that have not expired, and the times of the expired runs.

    An expired run was never dispatched and counts towards no bound.
    Earlier runs expire first.
    """
    in_time = [run for run in runs if run.expires_at is None or run.expires_at > now]
    return in_time, [run.scheduled_for for run in runs[: len(runs) - len(in_time)]]


def _already_staged(
    times: list[datetime],
    in_time: list[NewRun],
    *,
    open_runs: Collection[datetime],
    passed_until: datetime,
) -> tuple[datetime, ...]:
    if not open_runs:
        return ()
    candidates = {run.scheduled_for for run in in_time}
    return tuple(
        each
        for each in times
        if each <= passed_until and each in open_runs and each not in candidates
    )


def remaining_runs(policy: SchedulingPolicy, dispatched: int) -> int | None:
    """Return the number of runs that `times` still allows, or None without `times`.

    Only dispatched runs count towards `times`.
    """
    times = policy.when.times if isinstance(policy.when, Recurring) else None
    return None if times is None else max(0, times - dispatched)


def _max_runs(policy: SchedulingPolicy, remaining: int | None) -> int:
    max_runs = 1 if is_sequential(policy) else MAX_RUNS
    return max_runs if remaining is None else min(max_runs, remaining)


def _skipped_range(
    times: list[datetime], reason: Reason, schedule_id: UUID, *, placement: Placement
) -> SkippedRange:
    return SkippedRange(
        key=RunKey(times[0], schedule_id),
        placement=placement,
        until=times[-1],
        count=len(times),
        reason=reason,
    )


def new_run(policy: SchedulingPolicy, key: RunKey, placement: Placement) -> NewRun:
    """Return the run of one scheduled time. Delays change its due time and not its key."""
    return _new_run(policy, StartDelays.of(policy), key, placement=placement)


def _new_run(
    policy: SchedulingPolicy, delays: StartDelays, key: RunKey, *, placement: Placement
) -> NewRun:
    return NewRun(key, placement, delays.due_time(key), expiry_time(policy, key))


def expiry_time(policy: SchedulingPolicy, key: RunKey) -> datetime | None:
    """Return the scheduled time plus `expires_after`, or None for a run without expiry."""
    return None if policy.expires_after is None else key.scheduled_for + policy.expires_after


def _jitter_fraction(key: RunKey) -> float:
    """Return a hash of the key in [0, 1)."""
    seed = f"{key.schedule_id}@{key.scheduled_for.timestamp():.3f}".encode()
    return int.from_bytes(sha256(seed).digest()[:6], "big") / 2**48
