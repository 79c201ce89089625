"""Which runs exist: a timetable, a cursor and the time in, the runs until the horizon out."""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import UTC, datetime, time, timedelta
from hashlib import sha256
from typing import Final, NamedTuple
from uuid import UUID
from zoneinfo import ZoneInfo

from harebell.contract.policy import CatchUpMode
from harebell.contract.schedule import SchedulingPolicy
from harebell.contract.types import truncate_ms
from harebell.contract.when import Recurring
from harebell.domain.recurrence import RESOLUTION, AfterCompletion, Once, Recurrence, is_sequential
from harebell.domain.run_states import Reason

MISSED_AFTER: Final = timedelta(seconds=60)  # later than this, catch-up decides
MAX_RUNS: Final = 100  # of one schedule in one pass
MAX_STEPS: Final = 1_000  # instants looked at in one pass


class Planned(NamedTuple):
    """A run to stage."""

    scheduled_for: datetime
    due_at: datetime
    expires_at: datetime | None


@dataclass(frozen=True, slots=True)
class Skipped:
    """Instants that will not run, from `first` to `last`, and why."""

    first: datetime
    last: datetime
    count: int
    reason: Reason


class PlanningResult(NamedTuple):
    """`planned_to`: every instant up to there is decided. `next_at` None: nothing is left.

    `met`: instants passed over that have a run nevertheless, which counts if it was dispatched.
    """

    runs: tuple[Planned, ...]
    skipped: tuple[Skipped, ...]
    planned_until: datetime
    next_at: datetime | None
    already_staged: tuple[datetime, ...] = ()


def plan(
    table: Recurrence,
    terms: SchedulingPolicy,
    schedule_id: UUID,
    *,
    cursor: datetime,
    dispatched: int,
    now: datetime,
    until: datetime,
    skips: Collection[datetime] = (),
    handed_over: Collection[datetime] = (),
) -> PlanningResult:
    """The runs owed after `cursor` and up to `until`, bounded; `now` decides what was missed.

    A sequential schedule is owed one run at a time. `skips`: instants that a person took out;
    `handed_over`: those that had a run before.
    """
    every_instant = _instants(table, cursor, until)
    instants = [t for t in every_instant if t not in skips]
    missed = _missed(table, instants, now)
    current = instants[len(missed) :]
    more_missed = not current and len(every_instant) == MAX_STEPS
    made_up, skipped, decided = _catch_up(terms, missed, now, more=more_missed)
    chosen = [new_run(terms, schedule_id, moment) for moment in (*made_up, *current)]
    in_time, expired = _split_expired(chosen, now)
    passed_to = decided if more_missed and missed else max([cursor, *every_instant[-1:]])
    if expired and isinstance(table, AfterCompletion):
        passed_to = max(passed_to, truncate_ms(now) - RESOLUTION)  # the next one is due now
    met = _met(instants, in_time, handed_over, passed_to)
    left = remaining_runs(terms, dispatched + len(met))
    runs = in_time[: _most(terms, left)]
    exhausted = left is not None and len(runs) == left
    planned_until = passed_to
    if len(runs) < len(in_time):
        planned_until = max([cursor, *met[-1:], *(run.scheduled_for for run in runs[-1:])])
    following = None if exhausted else table.next_after(planned_until)
    taken_out = [
        Skipped(t, t, 1, Reason.MANUAL) for t in every_instant if t in skips and t <= planned_until
    ]
    return PlanningResult(
        tuple(runs), (*skipped, *expired, *taken_out), planned_until, following, met
    )


def catch_up(
    terms: SchedulingPolicy, schedule_id: UUID, moments: Collection[datetime], now: datetime
) -> tuple[list[Planned], list[Skipped]]:
    """Of instants that no timetable brings again: catch-up decides as about any other."""
    ordered = sorted(moments)
    missed = [t for t in ordered if now - t > MISSED_AFTER]
    made_up, skipped, _ = _catch_up(terms, missed, now, more=False)
    chosen = (*made_up, *ordered[len(missed) :])
    in_time, expired = _split_expired([new_run(terms, schedule_id, t) for t in chosen], now)
    return in_time, [*skipped, *expired]


def _most(terms: SchedulingPolicy, left: int | None) -> int:
    most = 1 if is_sequential(terms) else MAX_RUNS
    return most if left is None else min(most, left)


def _missed(table: Recurrence, instants: list[datetime], now: datetime) -> list[datetime]:
    """Not what is single: however late it is found, nothing has come in its place."""
    if isinstance(table, Once | AfterCompletion):
        return []
    return [t for t in instants if now - t > MISSED_AFTER]


def _met(
    instants: list[datetime],
    in_time: list[Planned],
    handed_over: Collection[datetime],
    passed_to: datetime,
) -> tuple[datetime, ...]:
    if not handed_over:
        return ()
    wanted = {run.scheduled_for for run in in_time}
    return tuple(t for t in instants if t <= passed_to and t in handed_over and t not in wanted)


def remaining_runs(terms: SchedulingPolicy, dispatched: int) -> int | None:
    """Only dispatched runs count towards `times`."""
    times = terms.when.times if isinstance(terms.when, Recurring) else None
    return None if times is None else max(0, times - dispatched)


def _instants(table: Recurrence, cursor: datetime, until: datetime) -> list[datetime]:
    """After an end there is one, due from then on: else each millisecond would be one."""
    instants: list[datetime] = []
    most = 1 if isinstance(table, AfterCompletion) else MAX_STEPS
    following = table.next_after(cursor)
    while following is not None and following <= until and len(instants) < most:
        instants.append(following)
        following = table.next_after(following)
    return instants


def _catch_up(
    terms: SchedulingPolicy, missed: list[datetime], now: datetime, *, more: bool
) -> tuple[list[datetime], list[Skipped], datetime]:
    """What of the missed is made up for, what is not, and how far that is decided.

    With `more` missed instants still unseen, the last few stay open: they may yet be among the
    latest `max`.
    """
    if not missed:
        return [], [], datetime.min.replace(tzinfo=UTC)
    policy = terms.catch_up
    keep = {CatchUpMode.NONE: 0, CatchUpMode.ONE: 1, CatchUpMode.ALL: policy.max}[policy.mode]
    latest = missed[max(0, len(missed) - keep) :] if keep else []
    if more:
        dropped = missed[: len(missed) - keep]
        return [], _skips(dropped), dropped[-1]
    made_up = [t for t in latest if _still_wanted(terms, t, now)]
    return made_up, _skips(missed[: len(missed) - len(made_up)]), missed[-1]


def _still_wanted(terms: SchedulingPolicy, missed: datetime, now: datetime) -> bool:
    """Both bounds let the later of two missed instants live longer, so what is kept is a tail."""
    policy = terms.catch_up
    if now - missed > policy.window:
        return False
    if policy.not_after is None:
        return True
    when = terms.when
    zone = ZoneInfo(when.timezone if isinstance(when, Recurring) else "UTC")
    return now < _next_time_of_day(missed, time.fromisoformat(policy.not_after), zone)


def _next_time_of_day(moment: datetime, wanted: time, zone: ZoneInfo) -> datetime:
    local = moment.astimezone(zone)
    day = local.date() if wanted > local.time() else local.date() + timedelta(days=1)
    return datetime.combine(day, wanted, zone).astimezone(UTC)


def _skips(instants: list[datetime], reason: Reason = Reason.MISSED) -> list[Skipped]:
    if not instants:
        return []
    return [Skipped(instants[0], instants[-1], len(instants), reason)]


def _split_expired(runs: list[Planned], now: datetime) -> tuple[list[Planned], list[Skipped]]:
    """What has expired was never dispatched: it counts towards no bound."""
    in_time = [run for run in runs if run.expires_at is None or run.expires_at > now]
    late = [run.scheduled_for for run in runs[: len(runs) - len(in_time)]]  # the earliest do first
    return in_time, _skips(late, Reason.EXPIRED)


def new_run(terms: SchedulingPolicy, schedule_id: UUID, scheduled_for: datetime) -> Planned:
    """The run of one instant: its start is delayed by jitter, its key is not."""
    jitter = terms.when.jitter
    after = terms.expires_after
    return Planned(
        scheduled_for,
        truncate_ms(scheduled_for + jitter * _share(schedule_id, scheduled_for))
        if jitter
        else scheduled_for,
        None if after is None else scheduled_for + after,
    )


def _share(schedule_id: UUID, scheduled_for: datetime) -> float:
    """In [0, 1), the same whoever asks."""
    seed = f"{schedule_id}@{scheduled_for.timestamp():.3f}".encode()
    return int.from_bytes(sha256(seed).digest()[:6], "big") / 2**48
