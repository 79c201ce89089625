"""What the services say on `/metrics`, against what the ledger and the target say themselves."""

from collections.abc import AsyncIterator, Iterator
from datetime import timedelta
from typing import Any

import pytest
from tests.acceptance.cluster_stack import PAIRS
from tests.acceptance.faults import SHORT_LEASES, start
from tests.acceptance.recording_target import Target
from tests.acceptance.scrape import Scrape
from tests.acceptance.stack import Stack, Tenant, time_in, until
from tests.rig.servers import Servers

from harebell.dev.plan import ServiceCounts, ServiceKind

pytestmark = [pytest.mark.broker, pytest.mark.postgres]

ONE_OF_EACH = ServiceCounts()  # for what every ticker shows alike
RUNS = "harebell_runs_total"
LATENESS = "harebell_start_lateness_seconds"
CROWD = 200
SLOWLY_ENOUGH = {"task": {"name": "harebell.sleep", "args": {"seconds": 60}}}
SLOWLY = {"task": {"name": "harebell.sleep", "args": {"seconds": 2.6}}}

_ENDS = """
SELECT state, coalesce(reason, '') AS reason, sum(coalesce(range_count, 1))::int AS runs
FROM runs WHERE tenant = $1 GROUP BY 1, 2
"""
_ATTEMPTS = """
SELECT attempts.outcome, count(*) AS number, sum(duration_ms) / 1000 AS seconds
FROM attempts JOIN runs USING (scheduled_for, schedule_id) WHERE tenant = $1 GROUP BY 1
"""
# As if no ticker had looked for ten minutes.
_UNSEEN = """
UPDATE schedule_state SET planned_until = now() - interval '10 min', next_at = now(), dispatched = 0
WHERE schedule_id = $1
"""


@pytest.fixture(scope="module")
def counted_stack(servers: Servers, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """Whatever is counted in it, the tests here have done."""
    with Stack.open(servers, tmp_path_factory.mktemp("counted")) as stack:
        stack.start(PAIRS)
        yield stack


@pytest.fixture
async def counted(counted_stack: Stack, name_of_test: str) -> AsyncIterator[Tenant]:
    async with counted_stack.tenant(name_of_test) as opened:
        yield opened


async def ends(tenant: Tenant) -> dict[tuple[str, ...], float]:
    rows = await tenant.ledger.fetch(_ENDS, tenant.name)
    return {(row["state"], row["reason"]): row["runs"] for row in rows}


async def until_all_ended(tenant: Tenant) -> None:
    async def ended() -> bool:
        return all(run["finished_at"] is not None for run in await tenant.runs())

    await until(ended, within=60, what="the end of all runs")


async def until_counted(tenant: Tenant, before: Scrape) -> Scrape:
    """What was counted since, once the ends of runs are what the ledger has."""
    expected = await ends(tenant)
    latest = before

    async def same() -> bool:
        nonlocal latest
        latest = await Scrape.collect(tenant.stack, PAIRS) - before
        return latest.by(RUNS, "outcome", "reason") == expected

    try:
        await until(same)
    except AssertionError:
        assert latest.by(RUNS, "outcome", "reason") == expected
    return latest


def tries(attempts: int, base: str = "100ms") -> dict[str, Any]:
    return {"retry": {"max_attempts": attempts, "backoff": {"base": base, "jitter": "none"}}}


@pytest.mark.requirement("S72", "S114")
async def test_a_scrape_after_a_known_load_is_what_the_ledger_says(
    counted: Tenant, target: Target
) -> None:
    before = await Scrape.collect(counted.stack, PAIRS)
    soon = {"after": "1s"}
    for number in range(20):
        await counted.put(f"well-{number}", soon, target.http("well", sleep=0.1))
    for number in range(3):
        await counted.put(f"dead-{number}", soon, target.http("dead", fail=9), **tries(2))
    await counted.put("flaky", soon, target.http("flaky", fail=1), **tries(3))
    too_late = {"expires_after": "2s", **tries(3, "30s")}
    await counted.put("too-late", soon, target.http("too-late", fail=9), **too_late)
    await counted.until_runs(25)
    await until_all_ended(counted)

    seen = await until_counted(counted, before)

    assert seen.by(RUNS, "outcome", "reason") == {
        ("succeeded", ""): 21,
        ("dead", "attempts_exhausted"): 3,
        ("expired", "expired"): 1,
    }
    attempts = await counted.ledger.fetch(_ATTEMPTS, counted.name)
    for name in ("harebell_attempts_total", "harebell_attempt_duration_seconds_count"):
        numbers = {(row["outcome"],): row["number"] for row in attempts}
        assert seen.by(name, "outcome") == numbers == {("succeeded",): 21, ("failed",): 8}
    took = seen.by("harebell_attempt_duration_seconds_sum", "outcome")
    for row in attempts:
        assert took[row["outcome"],] == pytest.approx(row["seconds"], abs=0.001)
    assert seen.total("harebell_start_lateness_seconds_count") == 21 + 8
    assert seen.by("harebell_commands_total", "verb", "result")["schedule.put", "ok"] == 25
    assert seen.by("harebell_change_latency_seconds_count", "verb") == {("schedule.put",): 25}

    async def dead_letters() -> bool:
        scrape = await Scrape.collect(counted.stack, ONE_OF_EACH)
        return scrape.total("harebell_dead_letters_open") == 3

    await until(dead_letters, what="three open dead letters")
    kept = await Scrape.collect(counted.stack, PAIRS) - before
    assert kept.by("harebell_dead_letters_total", "kind") == {("run",): 3}


async def withdraw_in_every_way(tenant: Tenant) -> None:
    """Three runs that are handed over and have not begun, each time."""
    start = time_in(25)
    later = {"every": "1s", "start": start.isoformat(), "times": 3}
    for key in ("cancelled", "paused", "moved", "taken-out"):
        await tenant.put(key, later, SLOWLY)
    await tenant.until_runs(12, "staged")
    await tenant.harebell.cancel(key="cancelled")
    await tenant.harebell.pause(key="paused")
    await tenant.harebell.patch({"when": {"every": "1h"}}, key="moved")
    for second in range(3):
        await tenant.harebell.skip(start + timedelta(seconds=second), key="taken-out")


@pytest.mark.requirement("ASK-1")
async def test_every_run_that_did_not_run_is_counted_by_its_reason(counted: Tenant) -> None:
    before = await Scrape.collect(counted.stack, PAIRS)
    past = {"every": "1s", "start": time_in(-3600).isoformat()}
    missed = await counted.put("missed", past, SLOWLY, catch_up={"mode": "none"})
    await counted.ledger.execute(_UNSEEN, missed)
    every_second = {"every": "1s", "times": 4}
    await counted.put("skipped_times", every_second, SLOWLY, overlap="skip")
    await counted.put("replaces", every_second, SLOWLY, overlap="replace")
    await counted.put("waits", every_second, SLOWLY, overlap="queue", expires_after="1s")
    await withdraw_in_every_way(counted)
    await counted.until_runs(1, "expired", within=60)
    await counted.harebell.cancel(key="missed")
    await until_all_ended(counted)

    seen = await until_counted(counted, before)

    not_run = seen.by(RUNS, "outcome", "reason")
    assert not_run["skipped", "catch_up"] > 500, "each instant of the one row counts"
    assert not_run["cancelled", "paused"] == not_run["skipped", "requested"] == 3
    assert not_run["cancelled", "superseded"] == 2, "one instant is the new timing's too"
    assert not_run["cancelled", "cancelled"] >= 3
    assert set(not_run) >= {
        ("skipped", "overlap"),
        ("cancelled", "replaced"),
        ("expired", "expired"),
    }


@pytest.mark.requirement("ASK-1")
async def test_runs_that_die_with_their_executor_or_are_dropped_by_it_are_counted(
    counted: Tenant,
) -> None:
    """One slot: the first run has it, the second is claimed and waits, so it can be dropped."""
    before = await Scrape.collect(counted.stack, PAIRS)
    pool = {"pool": "doomed", "on_unknown": "skip"}
    victim = SHORT_LEASES | {"HAREBELL_POOL": "doomed", "HAREBELL_SLOTS_NORMAL": "1"}
    executor = await start(counted.stack, ServiceKind.EXECUTOR, 4, **victim)
    await counted.put("holds-the-slot", {"now": True}, SLOWLY_ENOUGH, **pool)
    await counted.until_runs(1, "running")
    await counted.put("dropped", {"now": True}, SLOWLY_ENOUGH, **pool)
    await counted.until_runs(2, "running")

    await counted.harebell.cancel(key="dropped")
    await counted.until_runs(1, "cancelled")

    async def dropped() -> bool:
        alone = await Scrape.collect_one(counted.stack, ServiceKind.EXECUTOR, 4)
        return alone.by(RUNS, "outcome", "reason") == {("cancelled", "cancelled"): 1}

    await until(dropped, what="the count of the one that was dropped")
    counted.stack.kill(executor.name)
    await counted.until_runs(1, "skipped", within=60)

    async def lapsed() -> bool:
        seen = await Scrape.collect(counted.stack, PAIRS) - before
        return seen.by(RUNS, "outcome", "reason") == {("skipped", "unknown_outcome"): 1}

    await until(lapsed, what="the count of the one that lease_expired")
    seen = await Scrape.collect(counted.stack, PAIRS) - before
    assert seen.by("harebell_attempts_total", "outcome") == {("lease_expired",): 1}


@pytest.mark.requirement("S65")
async def test_the_lateness_that_is_published_is_the_ledgers_and_hides_nothing_from_the_target(
    counted: Tenant, target: Target
) -> None:
    """More at one instant than there are slots, so that some are late by more than a second."""
    before = await Scrape.collect(counted.stack, PAIRS)
    at = {"at": time_in(4).isoformat()}
    hook = target.http("crowd", sleep=0.8)
    await counted.harebell.put_many(
        [{"key": f"one-{n}", "when": at, "target": hook} for n in range(CROWD)]
    )
    await counted.until_runs(CROWD, "succeeded")
    await until_counted(counted, before)

    seen = await Scrape.collect(counted.stack, PAIRS) - before
    late = [call.late for call in target.calls("crowd")]
    assert seen.total(f"{LATENESS}_count") == len(late) == CROWD
    assert max(late) > 1
    runs = await counted.runs()
    started = [(run["started_at"] - run["due_at"]).total_seconds() for run in runs]
    for bound in (0.5, 1, 2, 5):
        told = seen.total(f"{LATENESS}_bucket", le=f"{bound:.1f}")
        assert told == sum(each <= bound for each in started)
        assert told >= sum(each <= bound for each in late), "it starts before the target hears"


@pytest.mark.requirement("S69")
async def test_the_backlog_of_each_lane_grows_without_executors_and_goes_with_them(
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

    async def gone() -> bool:
        return await backlog() == {}

    await until(gone, what="the end of the backlog")
    slots = await Scrape.collect(counted.stack, ServiceCounts(executors=3))
    assert slots.by("harebell_slots", "lane") == {("high",): 180, ("normal",): 120, ("low",): 30}
