"""The planned times of random schedules, compared with the runs of a ticker on virtual time."""

import logging
from collections import Counter
from collections.abc import Iterator
from datetime import datetime, timedelta
from random import Random
from typing import Any

import pytest
from tests.fakes.schedules import HORIZON, ID
from tests.fakes.ticker import FakeTicker
from tests.simulation.expected_runs import START
from tests.simulation.generators import ZONES, ScheduleGenerator

from harebell.contract.errors import Rejected
from harebell.domain.planned_times import PlannedSchedule, planned_spans
from harebell.domain.run_states import OPEN, RunState
from harebell.domain.timetables import DueTimesCache, Timetable, datetime_of
from harebell.intake.queries.forecast import HOUR, ForecastCounts, ForecastHours, HourRecord
from harebell.ticker.model.unit_of_work import ScheduleRecord
from harebell.ticker.model.version import Version

log = logging.getLogger(__name__)

SCHEDULES = 200
SHARES = 4  # tests that divide the schedules
DAY = timedelta(days=1)
FREQUENT_SHARE = 0.4
MAX_POLLS = 20_000  # of one schedule
# Times of clock changes in several of the zones, which most counted days contain.
CHANGES = ("2026-10-25", "2026-11-01", "2027-03-14", "2027-03-28")


def frequent_rule(random: Random) -> dict[str, Any]:
    """Return a rule with many times on each day."""
    minutes = random.choice((1, 7, 15, 60))
    rules: list[dict[str, Any]] = [
        {"every": f"{minutes}m"},
        {"every": f"{minutes}m", "phase": "spread"},
        {"cron": f"*/{minutes} * * * *" if minutes < 60 else "H */2 * * *"},
        {"any_of": [{"every": f"{minutes}m"}, {"cron": "30 * * * *"}]},
    ]
    rule = random.choice(rules)
    rule |= random.choice(({}, {"jitter": "20m"}, {"times": 300}, {"times": 9}))
    return rule | {"timezone": random.choice(ZONES)}


def timetable_of(version: Version) -> Timetable:
    return Timetable(ID, version.policy, version.recurrence, version.since, version.anchor)


def planned_schedule(record: ScheduleRecord) -> PlannedSchedule:
    return PlannedSchedule(
        timetables=tuple(timetable_of(each) for each in (record.version, *record.pending)),
        state=record.state,
        planned_until=record.planned_until,
        next_at=record.next_at,
        dispatched=record.dispatched,
        paused_until=record.paused_until,
        awaited_run=record.awaited_run,
        skipped_times=record.skipped_times,
        open_runs=record.open_runs,
    )


def planned_due_times(ticker: FakeTicker, until: datetime) -> Counter[datetime]:
    """Return the due times of the staged runs and of the planned times after now."""
    counts = Counter(
        run.due_at for run in ticker.rows.values() if run.state in OPEN and run.due_at > ticker.now
    )
    cache = DueTimesCache()
    schedule = planned_schedule(ticker.record)
    for span in planned_spans(schedule, now=ticker.now, until=until, cache=cache):
        counts.update(datetime_of(each) for each in (*span.caught_up, *span.due_times(cache)))
    return Counter({due: n for due, n in counts.items() if n and ticker.now < due <= until})


def forecast_of_hours(ticker: FakeTicker, hours: ForecastHours) -> list[int]:
    """Return the forecast of each hour, as intake counts it from the same rows."""
    counts = ForecastCounts(hours=hours)
    for run in ticker.rows.values():
        if (run.state in OPEN or run.attempt) and hours.start <= run.due_at < hours.end:
            hour = (run.due_at - hours.start) // HOUR
            counts.add_record(HourRecord(hour=hour, name=None, runs=1))
    schedule = planned_schedule(ticker.record)
    counts.add_schedule(schedule, None, tenant="acme", now=ticker.now, cache=DueTimesCache())
    return counts.runs


def runs_of_hours(due: Counter[datetime], hours: ForecastHours) -> list[int]:
    runs = [0] * hours.count
    for each, count in due.items():
        if hours.start <= each < hours.end:
            runs[(each - hours.start) // HOUR] += count
    return runs


def poll_until(ticker: FakeTicker, end: datetime) -> Iterator[None]:
    """Poll when a time reaches the horizon, run the due runs, and stop at `end`."""
    for _ in range(MAX_POLLS):
        ticker.stage_all().run_due()
        yield
        next_at = ticker.record.next_at
        if next_at is None or next_at - HORIZON >= end:
            ticker.now = end
            ticker.run_due()
            return
        ticker.now = max(ticker.now, next_at - HORIZON)
    raise AssertionError("The schedule has too many times.")


def due_times_of_runs(ticker: FakeTicker, until: datetime) -> Counter[datetime]:
    """Continue until `until`, and return the times at which runs became due."""
    since, staged_at = ticker.now, dict.fromkeys(ticker.rows, ticker.now)
    for _ in poll_until(ticker, until):
        staged_at |= dict.fromkeys(ticker.rows.keys() - staged_at.keys(), ticker.now)
        restaged = (key for key, run in ticker.rows.items() if run.staged_at == ticker.now)
        staged_at |= dict.fromkeys(restaged, ticker.now)
    cancelled = (RunState.CANCELLED, RunState.SKIPPED)
    runs = {key: run for key, run in ticker.rows.items() if run.state not in cancelled}
    due = Counter(max(run.due_at, staged_at[key]) for key, run in runs.items())
    return Counter({each: n for each, n in due.items() if since < each <= until})


def change(ticker: FakeTicker, generator: ScheduleGenerator) -> str:
    """Let a user change the schedule, or leave it unchanged. Return the kind of the change."""
    random = generator.random
    kind = random.choice(("none", "none", "pause", "pause until", "skip", "patch", "replace"))
    later = ticker.now + random.random() * 1.2 * DAY
    text = later.isoformat(timespec="milliseconds")
    try:
        match kind:
            case "pause":
                ticker.send("schedule.pause")
            case "pause until":
                ticker.send("schedule.pause", until=text)
            case "skip":
                times = sorted(planned_due_times(ticker, ticker.now + DAY))
                if times:
                    at = random.choice(times).isoformat(timespec="milliseconds")
                    ticker.send("schedule.skip", at=at)
            case "patch":
                ticker.send("schedule.patch", set={"priority": 9}, effective_at=text)
            case "replace":
                when = generator.schedule(ticker.now)["when"]
                ticker.send("schedule.patch", set={"when": when}, effective_at=text)
            case _:
                pass
    except Rejected as error:
        return f"{kind} rejected: {error.code}"
    return kind


def check(number: int) -> tuple[str, int]:
    """Compare one schedule, and return the kind of its change and the number of its runs."""
    random = Random(number)  # noqa: S311  # the same at every run
    generator = ScheduleGenerator(random)
    day = datetime.fromisoformat(f"{random.choice(CHANGES)}T00:00:00+00:00")
    accepted_at = max(START, day - random.choice((0, 1, 12, 48)) * timedelta(hours=1))
    ticker = FakeTicker(accepted_at)
    schedule = generator.schedule(accepted_at)
    if random.random() < FREQUENT_SHARE:
        schedule["when"] = frequent_rule(random)
    ticker.put(**schedule)
    for _ in poll_until(ticker, max(accepted_at, day - random.random() * DAY / 2)):
        pass
    kind = change(ticker, generator)
    ticker.stage_all()
    until = ticker.now + DAY
    now, planned = ticker.now, planned_due_times(ticker, until)
    next_hour = now.replace(minute=0, second=0, microsecond=0) + HOUR
    hours = ForecastHours(next_hour, 23)
    forecast = forecast_of_hours(ticker, hours)

    runs = due_times_of_runs(ticker, until)

    assert planned == runs, f"schedule {number}, {kind} at {now}: {schedule}"
    assert forecast == runs_of_hours(runs, hours)
    return kind, runs.total()


@pytest.mark.parametrize(
    "share", [0, *(pytest.param(share, marks=pytest.mark.long) for share in range(1, SHARES))]
)
def test_planned_times_of_a_day_equal_the_runs_that_become_due(share: int) -> None:
    kinds: Counter[str] = Counter()
    runs = 0
    for number in range(share, SCHEDULES, SHARES):
        kind, count = check(number)
        kinds[kind] += 1
        runs += count
    log.info("%s runs, %s", runs, dict(kinds))
    assert {"none", "pause", "pause until", "skip", "patch", "replace"} <= kinds.keys()
    assert runs > SCHEDULES
