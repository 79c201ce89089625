"""The forecast: the number of runs of each hour and group, from the record and planning (pure)."""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Final

from harebell.contract.errors import InvalidInput
from harebell.contract.queries import MAX_FORECAST, ForecastGrouping, RunForecast
from harebell.contract.types import duration_text, instant_text
from harebell.contract.views import ForecastCalendar, ForecastGroup, ForecastView
from harebell.domain.planned_times import PlannedSchedule, planned_spans
from harebell.domain.run_states import RETENTION
from harebell.domain.timetables import DueTimesCache, milliseconds_of

HOUR: Final = timedelta(hours=1)
DEFAULT_RANGE: Final = timedelta(hours=24)
MAX_AHEAD: Final = timedelta(days=31)  # from now to the last hour
MAX_GROUPS: Final = 50  # of a response; one further group contains the sum of the others
MAX_CALENDARS: Final = 50  # of a response, those with the most times
NO_NAME: Final = ""  # the group of runs without a tag, because no tag is empty
_UPPER_BOUND: Final = (
    "Schedules with until: success or from: completion count as if each run took no time and "
    "failed."
)


@dataclass(frozen=True, slots=True)
class ForecastHours:
    """Consecutive hours from `start` on."""

    start: datetime
    count: int

    @property
    def end(self) -> datetime:
        return self.start + self.count * HOUR

    @property
    def starts(self) -> list[datetime]:
        return [self.start + number * HOUR for number in range(self.count)]


@dataclass(slots=True, kw_only=True)
class HourRecord:
    """The recorded runs of one hour and group. The lateness is in milliseconds."""

    hour: int
    name: str | None  # None: all groups
    runs: int
    late_p50_ms: float | None = None
    late_p99_ms: float | None = None


@dataclass(slots=True, kw_only=True)
class ForecastCounts:
    """The counts of each hour. `first_complete` is the first hour whose record was read."""

    hours: ForecastHours
    runs: list[int] = field(init=False)
    groups: dict[str, list[int]] = field(default_factory=dict)
    lateness: dict[int, HourRecord] = field(default_factory=dict)
    excluded: Counter[tuple[str, str]] = field(default_factory=Counter)  # by tenant and calendar
    held: Counter[tuple[str, str]] = field(default_factory=Counter)  # likewise
    first_complete: int = 0
    has_upper_bound: bool = False
    notes: list[str] = field(default_factory=list)
    _edges: list[int] = field(init=False)

    def __post_init__(self) -> None:
        self.runs = [0] * self.hours.count
        edges = (*self.hours.starts, self.hours.end)
        self._edges = [milliseconds_of(each) for each in edges]

    def add_record(self, record: HourRecord) -> None:
        if record.name is None:
            self.runs[record.hour] += record.runs
            self.lateness[record.hour] = record
        else:
            self._group(record.name)[record.hour] += record.runs

    def add_schedule(
        self,
        schedule: PlannedSchedule,
        names: Iterable[str] | None,
        *,
        tenant: str,
        now: datetime,
        cache: DueTimesCache,
    ) -> None:
        """Count the planned runs of a schedule. Without `names`, the pool of a version counts.

        After an error, no run of the schedule counts.
        """
        until = self.hours.end - timedelta(milliseconds=1)
        spans = planned_spans(schedule, now=now, until=until, cache=cache)
        computed = [
            (
                span,
                span.due_times(cache),
                [(tenant, name) for name in span.excluding_calendars(cache)],
                [(tenant, name) for name in span.holding_calendars(cache)],
            )
            for span in spans
        ]
        for span, due_times, excluded, held in computed:
            pool = span.timetable.policy.pool
            self.has_upper_bound = self.has_upper_bound or span.is_upper_bound
            groups = [self._group(name) for name in ([pool] if names is None else names)]
            for due in (span.caught_up, due_times):
                if due:
                    self._add(groups, sorted(due) if span.timetable.can_delay else due)
            self.excluded.update(excluded)
            self.held.update(held)

    def _add(self, groups: Sequence[list[int]], due: Sequence[int]) -> None:
        """Count sorted due times by hour, which costs one search for each hour."""
        before = bisect_left(due, self._edges[0])
        for hour, edge in enumerate(self._edges[1:]):
            if before == len(due):
                return
            position = bisect_left(due, edge, before)
            if position > before:
                for counts in (self.runs, *groups):
                    counts[hour] += position - before
            before = position

    def _group(self, name: str) -> list[int]:
        if name not in self.groups:
            self.groups[name] = [0] * self.hours.count
        return self.groups[name]


def forecast_hours(query: RunForecast, now: datetime) -> ForecastHours:
    """Return the whole hours of a query. Raise `InvalidInput` for a range that is not allowed."""
    start = _hour_of(query.from_ or now)
    end = start + DEFAULT_RANGE if query.to is None else query.to
    if end <= start:
        raise InvalidInput(f"The end must be later than {instant_text(start)}.", field="to")
    count = -((start - end) // HOUR)
    if count * HOUR > MAX_FORECAST:
        limit, found = duration_text(MAX_FORECAST), duration_text(count * HOUR)
        raise InvalidInput(f"The forecast must cover at most {limit}, not {found}.", field="to")
    if start < now - RETENTION:
        limit = duration_text(RETENTION)
        raise InvalidInput(f"The start must be within the last {limit}.", field="from")
    if end > now + MAX_AHEAD:
        limit = duration_text(MAX_AHEAD)
        raise InvalidInput(f"The end must be within the next {limit}.", field="to")
    return ForecastHours(start, count)


def forecast_view(
    hours: ForecastHours, counts: ForecastCounts, *, by: ForecastGrouping, now: datetime
) -> ForecastView:
    """Return the response, with the largest groups first."""
    notes = list(counts.notes)
    if counts.first_complete:
        since = instant_text(hours.start + counts.first_complete * HOUR)
        notes.append(f"The record has too many runs to count those before {since}.")
    if counts.has_upper_bound:
        notes.append(_UPPER_BOUND)
    late = [counts.lateness.get(hour) for hour in range(hours.count)]
    known = range(counts.first_complete, hours.count)
    return ForecastView(
        at=now,
        from_=hours.start,
        to=hours.end,
        by=by.value,
        hours=hours.starts,
        runs=_known(counts, counts.runs),
        late_p50_ms=[None if each is None else each.late_p50_ms for each in late],
        late_p99_ms=[None if each is None else each.late_p99_ms for each in late],
        groups=_groups(counts),
        quiet_hours=[hours.start + hour * HOUR for hour in known if not counts.runs[hour]],
        calendars=_calendars(counts),
        notes=notes,
    )


def _groups(counts: ForecastCounts) -> list[ForecastGroup]:
    totals = {name: sum(runs[counts.first_complete :]) for name, runs in counts.groups.items()}
    names = sorted(
        (name for name in totals if totals[name]), key=lambda name: (-totals[name], name)
    )
    shown, rest = names[:MAX_GROUPS], names[MAX_GROUPS:]
    groups = [
        ForecastGroup(
            name=name if name != NO_NAME else None,
            total=totals[name],
            runs=_known(counts, counts.groups[name]),
        )
        for name in shown
    ]
    if rest:
        sums = [sum(hour) for hour in zip(*(counts.groups[name] for name in rest), strict=True)]
        total = sum(totals[name] for name in rest)
        groups.append(ForecastGroup(is_rest=True, total=total, runs=_known(counts, sums)))
    return groups


def _calendars(counts: ForecastCounts) -> list[ForecastCalendar]:
    total = counts.excluded + counts.held
    shown = sorted(total, key=lambda key: (-total[key], key))[:MAX_CALENDARS]
    return [
        ForecastCalendar(
            tenant=key[0], name=key[1], excluded=counts.excluded[key], held=counts.held[key]
        )
        for key in shown
    ]


def _known(counts: ForecastCounts, runs: Sequence[int]) -> list[int | None]:
    return [None] * counts.first_complete + list(runs[counts.first_complete :])


def _hour_of(time: datetime) -> datetime:
    return time.astimezone(UTC).replace(minute=0, second=0, microsecond=0)
