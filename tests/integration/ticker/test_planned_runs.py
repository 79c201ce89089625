"""The metric of planned runs, from schedules and runs in PostgreSQL."""

from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import asyncpg
import pytest
from prometheus_client import REGISTRY
from tests.fakes.stored_schedules import schedule_ids, store_schedules
from tests.rig.servers import as_role

from harebell.runtime.clock import Clock
from harebell.runtime.settings import PoolBounds
from harebell.storage.engine import open_pool
from harebell.ticker import planned_runs
from harebell.ticker.model.planning import plan_schedule
from harebell.ticker.plan_writer import save_planning_steps
from harebell.ticker.planned_runs import PlannedRunsMetrics
from harebell.ticker.store import planned_runs as planned_store
from harebell.ticker.store.schedules import load_due
from harebell.ticker.store.versions import VersionCache

pytestmark = pytest.mark.requirement("S114")
HORIZON = timedelta(seconds=84)


@pytest.fixture
async def pool(database_url: str) -> AsyncIterator[asyncpg.Pool]:
    url = as_role(database_url, "ticker")
    async with open_pool(url, name="test", bounds=PoolBounds(max_size=4)) as opened:
        yield opened


@pytest.fixture
async def ticker(pool: asyncpg.Pool) -> PlannedRunsMetrics:
    return PlannedRunsMetrics(pool=pool, clock=await fixed_clock())


async def fixed_clock() -> Clock:
    """Return a clock that starts at a whole minute of today, where partitions exist."""
    start = datetime.now(UTC).replace(second=0, microsecond=0)

    async def read() -> datetime:
        return start

    clock = Clock(read)
    await clock.refresh()
    return clock


def shown(pool: str, lane: str = "normal") -> list[float | None]:
    """Return the values of the metric for 1, 5 and 15 minutes."""
    labels = ({"pool": pool, "lane": lane, "within": within} for within in ("1m", "5m", "15m"))
    return [REGISTRY.get_sample_value("harebell_planned_runs", each) for each in labels]


async def refresh(ticker: PlannedRunsMetrics) -> None:
    await ticker.count()
    ticker.update()


async def store(ticker: PlannedRunsMetrics, when: dict[str, Any], pool: str, **more: Any) -> None:
    """Store one schedule as accepted at the start of the clock."""
    count: int = await ticker.pool.fetchval("SELECT count(*) FROM schedules")
    at = ticker.clock.now().replace(second=0, microsecond=0)
    await store_schedules(ticker.pool, schedule_ids(1, count), when, at, pool=pool, **more)


async def stage(ticker: PlannedRunsMetrics) -> None:
    """Stage the runs within the horizon, as a pass of a ticker does."""
    now = ticker.clock.now()
    async with ticker.pool.acquire() as connection, connection.transaction():
        due = await load_due(connection, VersionCache(), now + HORIZON, limit=1000)
        steps = [plan_schedule(record, now, now + HORIZON) for record in due]
        await save_planning_steps(connection, steps, now=now)


async def test_every_run_of_a_frequent_schedule_counts(ticker: PlannedRunsMetrics) -> None:
    await store(ticker, {"every": "20s"}, "often")
    await store(ticker, {"cron": "*/1 * * * *"}, "cron", priority=9)

    await refresh(ticker)

    assert shown("often") == [3, 15, 45]
    assert shown("cron", "high") == [1, 5, 15]
    assert shown("cron") == [0, 0, 0]


async def test_staged_runs_count_once(ticker: PlannedRunsMetrics) -> None:
    await store(ticker, {"every": "20s"}, "staged")
    await refresh(ticker)
    before = shown("staged")

    await stage(ticker)
    await refresh(ticker)

    staged = await ticker.pool.fetchval("SELECT count(*) FROM runs")
    assert staged == 4
    assert shown("staged") == before == [3, 15, 45]


async def test_number_of_remaining_runs_and_jitter_bound_the_count(
    ticker: PlannedRunsMetrics,
) -> None:
    await store(ticker, {"every": "20s", "times": 7}, "seven")
    await store(ticker, {"every": "1m", "jitter": "1m"}, "jitter")

    await refresh(ticker)

    assert shown("seven") == [3, 7, 7]
    one, five, fifteen = shown("jitter")
    assert one == 0
    assert five in (4, 5)
    assert fifteen in (14, 15)


async def test_pause_counts_from_its_end_on(ticker: PlannedRunsMetrics) -> None:
    await store(ticker, {"every": "1m"}, "paused")
    await store(ticker, {"every": "1m"}, "later")
    until = ticker.clock.now().replace(second=30, microsecond=0) + timedelta(minutes=3)
    set_state = """
UPDATE schedule_state SET state = 'paused', paused_until = $2::timestamptz, next_at = $2
WHERE schedule_id = (SELECT id FROM schedules WHERE pool = $1)
"""
    await ticker.pool.execute(set_state, "paused", None)
    await ticker.pool.execute(set_state, "later", until)

    await refresh(ticker)

    assert shown("paused") == [0, 0, 0]
    # At the end of the pause, one of its times is caught up.
    assert shown("later") == [0, 3, 13]


async def test_waiting_retry_counts_at_its_next_attempt(ticker: PlannedRunsMetrics) -> None:
    await store(ticker, {"now": True}, "retrying")
    await stage(ticker)
    at = ticker.clock.now() + timedelta(minutes=4)
    await ticker.pool.execute(
        "UPDATE runs SET state = 'retrying', attempt = 1, next_attempt_at = $1", at
    )

    await refresh(ticker)

    assert shown("retrying") == [0, 1, 1]


async def test_metrics_follow_the_clock_between_two_passes(ticker: PlannedRunsMetrics) -> None:
    at = ticker.clock.now().replace(microsecond=0) + timedelta(minutes=6)
    await store(ticker, {"at": at.isoformat()}, "soon")
    await refresh(ticker)
    before = shown("soon")

    ticker.clock = await fixed_clock_at(ticker.clock.now() + timedelta(minutes=2))
    ticker.update()

    assert before == [0, 0, 1]
    assert shown("soon") == [0, 1, 1]


async def fixed_clock_at(time: datetime) -> Clock:
    async def read() -> datetime:
        return time

    clock = Clock(read)
    await clock.refresh()
    return clock


async def test_every_ticker_shows_the_whole_fleet(
    ticker: PlannedRunsMetrics, pool: asyncpg.Pool
) -> None:
    await store(ticker, {"every": "30s"}, "fleet")
    other = PlannedRunsMetrics(pool=pool, clock=ticker.clock)

    await refresh(ticker)
    first = shown("fleet")
    await refresh(other)

    assert first == shown("fleet") == [2, 10, 30]


async def test_pass_over_its_bound_keeps_the_earliest_schedules(
    ticker: PlannedRunsMetrics, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(planned_runs, "MAX_SCHEDULES", 2)
    monkeypatch.setattr(planned_runs, "BATCH", 1)
    for minutes in (1, 2, 3):
        await store(ticker, {"every": f"{minutes}m"}, "bounded")

    await refresh(ticker)

    assert not ticker.counts.is_complete
    assert shown("bounded") == [1, 7, 22]


async def test_pool_without_planned_runs_shows_zero_when_its_schedule_has_ended(
    ticker: PlannedRunsMetrics,
) -> None:
    await store(ticker, {"now": True}, "idle")
    await stage(ticker)
    await ticker.pool.execute("UPDATE runs SET state = 'succeeded', finished_at = now()")

    await refresh(ticker)

    assert shown("idle") == [0, 0, 0]
    assert shown("unknown") == [None, None, None]


async def test_timetables_of_a_failed_statement_are_read_again(
    ticker: PlannedRunsMetrics, monkeypatch: pytest.MonkeyPatch
) -> None:
    await store(ticker, {"every": "20s"}, "often")
    statement = "SELECT 1 / 0 FROM unnest($1::uuid[], $2::int[]) WHERE $3::text[] IS NOT NULL"
    with monkeypatch.context() as context:
        failing = replace(planned_store.STATEMENTS, load_timetables=statement)
        context.setattr(planned_store, "STATEMENTS", failing)
        with pytest.raises(asyncpg.DivisionByZeroError):
            await ticker.count()
    ticker.timetables.discard_unused()

    await refresh(ticker)

    assert shown("often") == [3, 15, 45]
