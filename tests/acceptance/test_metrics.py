"""The metrics of the services, compared with the ledger and with the target."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from datetime import timedelta
from typing import Any

import pytest
from tests.acceptance.cluster_stack import PAIRS
from tests.acceptance.faults import start
from tests.acceptance.recording_target import Target
from tests.acceptance.scrape import Scrape
from tests.acceptance.stack import Stack, Tenant, time_in
from tests.rig.polling import until
from tests.rig.servers import Servers

from harebell.dev.plan import ServiceCounts, ServiceKind

pytestmark = [pytest.mark.broker, pytest.mark.postgres]

ONE_OF_EACH = ServiceCounts()  # for metrics that each ticker shows with the same value
RUNS = "harebell_runs_total"
LATENESS = "harebell_start_lateness_seconds"
SIMULTANEOUS = 200
SLEEP_60_S = {"task": {"name": "harebell.sleep", "args": {"seconds": 60}}}
SLEEP_2_6_S = {"task": {"name": "harebell.sleep", "args": {"seconds": 2.6}}}

_RUN_COUNTS = """
SELECT state, coalesce(reason, '') AS reason, sum(coalesce(range_count, 1))::int AS runs
FROM runs WHERE tenant = $1 GROUP BY 1, 2
"""
_ATTEMPTS = """
SELECT attempts.outcome, count(*) AS number, sum(duration_ms) / 1000 AS seconds
FROM attempts JOIN runs USING (scheduled_for, schedule_id) WHERE tenant = $1 GROUP BY 1
"""
# The ticker finds the schedule as if no pass had run for ten minutes.
_SET_BACK = """
UPDATE schedule_state SET planned_until = now() - interval '10 min', next_at = now(), dispatched = 0
WHERE schedule_id = $1
"""


@pytest.fixture(scope="module")
def counted_stack(servers: Servers, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """Yield a stack that only the tests of this module use, because they compare its counters."""
    with Stack.open(servers, tmp_path_factory.mktemp("counted")) as stack:
        stack.start(PAIRS)
        yield stack


@pytest.fixture
async def counted(counted_stack: Stack, name_of_test: str) -> AsyncIterator[Tenant]:
    async with counted_stack.tenant(name_of_test) as opened:
        yield opened


async def run_counts(tenant: Tenant) -> dict[tuple[str, ...], float]:
    rows = await tenant.ledger.fetch(_RUN_COUNTS, tenant.name)
    return {(row["state"], row["reason"]): row["runs"] for row in rows}


async def until_all_ended(tenant: Tenant) -> None:
    async def ended() -> bool:
        return all(run["finished_at"] is not None for run in await tenant.runs())

    await until(ended, within=60, what="the end of all runs")


async def until_counted(tenant: Tenant, before: Scrape) -> Scrape:
    """Wait until the run counters equal the ledger and return all differences to `before`."""
    expected = await run_counts(tenant)
    latest = before

    async def is_equal() -> bool:
        nonlocal latest
        latest = await Scrape.collect(tenant.stack, PAIRS) - before
        return latest.by(RUNS, "state", "reason") == expected

    try:
        await until(is_equal)
    except AssertionError:
        assert latest.by(RUNS, "state", "reason") == expected
    return latest


def retry_policy(attempts: int, base: str = "100ms") -> dict[str, Any]:
    return {"retry": {"max_attempts": attempts, "backoff": {"base": base, "jitter": "none"}}}


@pytest.mark.long
@pytest.mark.requirement("S72", "S114")
async def test_metrics_equal_the_ledger_after_a_known_load(counted: Tenant, target: Target) -> None:
    before = await Scrape.collect(counted.stack, PAIRS)
    soon = {"after": "1s"}
    for number in range(20):
        await counted.put(f"well-{number}", soon, target.http("well", sleep=0.1))
    for number in range(3):
        await counted.put(f"dead-{number}", soon, target.http("dead", fail=9), **retry_policy(2))
    await counted.put("flaky", soon, target.http("flaky", fail=1), **retry_policy(3))
    too_late = {"expires_after": "20s", **retry_policy(3, "30s")}
    await counted.put("too-late", soon, target.http("too-late", fail=9), **too_late)
    await counted.until_runs(25)
    await until_all_ended(counted)

    counted_since = await until_counted(counted, before)

    assert counted_since.by(RUNS, "state", "reason") == {
        ("succeeded", ""): 21,
        ("dead", "attempts_exhausted"): 3,
        ("expired", "expired"): 1,
    }
    attempts = await counted.ledger.fetch(_ATTEMPTS, counted.name)
    for name in ("harebell_attempts_total", "harebell_attempt_duration_seconds_count"):
        numbers = {(row["outcome"],): row["number"] for row in attempts}
        assert counted_since.by(name, "outcome") == numbers == {("succeeded",): 21, ("failed",): 8}
    durations = counted_since.by("harebell_attempt_duration_seconds_sum", "outcome")
    for row in attempts:
        assert durations[row["outcome"],] == pytest.approx(row["seconds"], abs=0.001)
    assert counted_since.total("harebell_start_lateness_seconds_count") == 21 + 8
    assert (
        counted_since.by("harebell_commands_total", "verb", "result")["schedule.put", "applied"]
        == 25
    )
    assert counted_since.by("harebell_change_latency_seconds_count", "verb") == {
        ("schedule.put",): 25
    }

    async def dead_letters() -> bool:
        scrape = await Scrape.collect(counted.stack, ONE_OF_EACH)
        return scrape.total("harebell_dead_letters_open") == 3

    await until(dead_letters, what="three open dead letters")
    dead_letter_counts = await Scrape.collect(counted.stack, PAIRS) - before
    assert dead_letter_counts.by("harebell_dead_letters_total", "kind") == {("run",): 3}


async def unstage_in_every_way(tenant: Tenant) -> None:
    """Unstage three staged runs of each of four schedules, in four ways."""
    start = time_in(25)
    later = {"every": "1s", "start": start.isoformat(), "times": 3}
    keys = ("cancelled", "paused", "moved", "skipped")
    await asyncio.gather(*(tenant.put(key, later, SLEEP_2_6_S) for key in keys))
    await tenant.until_runs(12, "staged")
    await tenant.harebell.cancel(key="cancelled")
    await tenant.harebell.pause(key="paused")
    await tenant.harebell.patch({"when": {"every": "1h"}}, key="moved")
    for second in range(3):
        await tenant.harebell.skip(start + timedelta(seconds=second), key="skipped")


@pytest.mark.long
@pytest.mark.requirement("ASK-1")
async def test_unexecuted_run_is_counted_by_its_reason(counted: Tenant) -> None:
    before = await Scrape.collect(counted.stack, PAIRS)
    past = {"every": "1s", "start": time_in(-3600).isoformat()}
    missed = await counted.put("missed", past, SLEEP_2_6_S, catch_up={"mode": "none"})
    await counted.ledger.execute(_SET_BACK, missed)
    every_second = {"every": "1s", "times": 4}
    await counted.put("skips", every_second, SLEEP_2_6_S, overlap="skip")
    await counted.put("replaces", every_second, SLEEP_2_6_S, overlap="replace")
    await counted.put("waits", every_second, SLEEP_2_6_S, overlap="queue", expires_after="1s")
    await unstage_in_every_way(counted)
    await counted.until_runs(1, "expired", within=60)
    await counted.harebell.cancel(key="missed")
    await until_all_ended(counted)

    counted_since = await until_counted(counted, before)

    unexecuted = counted_since.by(RUNS, "state", "reason")
    assert unexecuted["skipped", "missed"] > 500, "Each scheduled time of the row counts."
    assert unexecuted["cancelled", "paused"] == unexecuted["skipped", "manual"] == 3
    assert unexecuted["cancelled", "superseded"] == 2, (
        "The new version also has one of the three times."
    )
    assert unexecuted["cancelled", "cancelled"] >= 3
    assert set(unexecuted) >= {
        ("skipped", "overlap"),
        ("cancelled", "replaced"),
        ("expired", "expired"),
    }


@pytest.mark.requirement("ASK-1")
@pytest.mark.long
async def test_run_is_counted_when_its_executor_dies_or_cancels_it(
    counted: Tenant,
) -> None:
    """The first run uses the only slot, so the second is claimed, waits and can be cancelled."""
    before = await Scrape.collect(counted.stack, PAIRS)
    pool = {"pool": "doomed", "on_unknown": "skip"}
    settings = {"HAREBELL_POOL": "doomed", "HAREBELL_SLOTS_NORMAL": "1"}
    executor = await start(counted.stack, ServiceKind.EXECUTOR, 4, **settings)
    await counted.put("holds-the-slot", {"now": True}, SLEEP_60_S, **pool)
    await counted.until_runs(1, "running")
    await counted.put("unstarted", {"now": True}, SLEEP_60_S, **pool)
    await counted.until_runs(2, "running")

    await counted.harebell.cancel(key="unstarted")
    await counted.until_runs(1, "cancelled")

    async def is_counted() -> bool:
        alone = await Scrape.collect_one(counted.stack, ServiceKind.EXECUTOR, 4)
        return alone.by(RUNS, "state", "reason") == {("cancelled", "cancelled"): 1}

    await until(is_counted, what="the count of the cancelled run")
    counted.stack.kill(executor.name)
    await counted.until_runs(1, "skipped", within=60)

    async def is_lease_expired() -> bool:
        counted_since = await Scrape.collect(counted.stack, PAIRS) - before
        return counted_since.by(RUNS, "state", "reason") == {("skipped", "unknown_outcome"): 1}

    await until(is_lease_expired, what="the count of the run with an expired lease")
    counted_since = await Scrape.collect(counted.stack, PAIRS) - before
    assert counted_since.by("harebell_attempts_total", "outcome") == {("lease_expired",): 1}


@pytest.mark.requirement("S65")
async def test_lateness_metric_equals_the_ledger_and_includes_the_calls(
    counted: Tenant, target: Target
) -> None:
    """Put more runs with one due time than slots, so that some are late by more than a second."""
    before = await Scrape.collect(counted.stack, PAIRS)
    at = {"at": time_in(2).isoformat()}
    hook = target.http("simultaneous", sleep=0.8)
    await counted.harebell.put_many(
        [{"key": f"one-{n}", "when": at, "target": hook} for n in range(SIMULTANEOUS)]
    )
    await counted.until_runs(SIMULTANEOUS, "succeeded")
    await until_counted(counted, before)

    counted_since = await Scrape.collect(counted.stack, PAIRS) - before
    late = [call.late for call in target.calls("simultaneous")]
    assert counted_since.total(f"{LATENESS}_count") == len(late) == SIMULTANEOUS
    assert max(late) > 1
    runs = await counted.runs()
    started = [(run["started_at"] - run["due_at"]).total_seconds() for run in runs]
    for bound in (0.5, 1, 2, 5):
        observed = counted_since.total(f"{LATENESS}_bucket", le=f"{bound:.1f}")
        assert observed == sum(each <= bound for each in started)
        assert observed >= sum(each <= bound for each in late), (
            "An attempt starts before its call arrives."
        )


@pytest.mark.long
@pytest.mark.requirement("S69")
async def test_backlog_metric_of_each_lane_grows_without_executors_and_ends_with_them(
    counted: Tenant, target: Target
) -> None:
    pool = "autoscaled"
    urgent = {"pool": pool, "priority": 9}
    for number in range(7):
        await counted.put(f"urgent-{number}", {"now": True}, target.http("scaled"), **urgent)
    for number in range(5):
        await counted.put(f"plain-{number}", {"now": True}, target.http("scaled"), pool=pool)

    async def backlog() -> dict[tuple[str, ...], float]:
        scrape = await Scrape.collect(counted.stack, ONE_OF_EACH)
        return scrape.by("harebell_due_backlog_runs", "pool", "lane")

    async def grown() -> bool:
        return await backlog() == {(pool, "high"): 7, (pool, "normal"): 5}

    await until(grown, what="the backlog of both lanes")
    scrape = await Scrape.collect(counted.stack, ONE_OF_EACH)
    assert scrape.total("harebell_oldest_due_age_seconds", pool=pool, lane="high") > 0
    await start(counted.stack, ServiceKind.EXECUTOR, 3, HAREBELL_POOL=pool)
    await counted.until_runs(12, "succeeded", within=60)

    async def is_empty() -> bool:
        return await backlog() == {}

    await until(is_empty, what="the end of the backlog")
    slots = await Scrape.collect(counted.stack, ServiceCounts(executors=3))
    assert slots.by("harebell_slots", "lane") == {("high",): 180, ("normal",): 120, ("low",): 30}
