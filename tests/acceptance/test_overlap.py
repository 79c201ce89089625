"""Overlap policies of schedules whose runs take longer than the interval between them."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from itertools import pairwise

import asyncpg
import pytest
from tests.acceptance.faults import (
    SHORT_LEASES,
    Pool,
    holder_of,
    start_with_kill,
    until_called,
    until_dead,
)
from tests.acceptance.recording_target import Target
from tests.acceptance.stack import Tenant
from tests.rig.polling import until

from harebell.contract.ids import RunKey
from harebell.dev.plan import ServiceKind

pytestmark = [
    pytest.mark.broker,
    pytest.mark.postgres,
    pytest.mark.broker_version,
    pytest.mark.long,
]

SLEEP_1_6_S = {"task": {"name": "harebell.sleep", "args": {"seconds": 1.6}}}
EVERY_SECOND = {"every": "1s", "times": 5}


async def attempt_spans(
    tenant: Tenant, runs: Sequence[asyncpg.Record]
) -> list[tuple[datetime, datetime]]:
    """Return the start and the end of each attempt, in order.

    The list omits an attempt whose executor died before it recorded the start.
    """
    found = []
    for run in runs:
        name = str(RunKey(run["scheduled_for"], run["schedule_id"]))
        found += [(row["started_at"], row["finished_at"]) for row in await tenant.attempts(name)]
    return sorted(span for span in found if span[0] is not None)


async def assert_one_at_a_time(tenant: Tenant, runs: Sequence[asyncpg.Record]) -> None:
    for (_, ended), (started, _) in pairwise(await attempt_spans(tenant, runs)):
        assert ended <= started


async def until_ended(tenant: Tenant, count: int) -> list[asyncpg.Record]:
    async def ended() -> list[asyncpg.Record] | None:
        rows = await tenant.runs()
        over = [row for row in rows if row["finished_at"] is not None]
        return rows if len(over) >= count else None

    rows = await until(ended, what=f"the end of {count} runs")
    assert rows is not None
    return rows


@pytest.mark.requirement("S50")
async def test_skip_policy_skips_and_records_a_run_during_another_run(
    tenant: Tenant,
) -> None:
    await tenant.put("slow", EVERY_SECOND, SLEEP_1_6_S, overlap="skip")

    runs = await until_ended(tenant, 5)

    ended = [(run["state"], run["reason"]) for run in runs]
    assert ended[0] == ("succeeded", None)
    assert set(ended) == {("succeeded", None), ("skipped", "overlap")}
    assert all(before != after for before, after in pairwise(ended)), "Every second run is skipped."
    await assert_one_at_a_time(tenant, runs)


@pytest.mark.long
@pytest.mark.requirement("S50")
async def test_queue_policy_runs_all_in_order_one_at_a_time(tenant: Tenant) -> None:
    await tenant.put("slow", EVERY_SECOND, SLEEP_1_6_S, overlap="queue")

    runs = await until_ended(tenant, 5)

    assert [run["state"] for run in runs] == ["succeeded"] * 5
    started = [run["started_at"] for run in runs]
    assert started == sorted(started)
    await assert_one_at_a_time(tenant, runs)
    gaps = [after[0] - before[1] for before, after in pairwise(await attempt_spans(tenant, runs))]
    assert max(gaps) < timedelta(seconds=2), (
        "The completion must wake the next run before a recovery pass finds the run."
    )


@pytest.mark.requirement("S50")
async def test_replace_policy_stops_the_running_run_and_runs_the_newest(tenant: Tenant) -> None:
    await tenant.put("slow", EVERY_SECOND, SLEEP_1_6_S, overlap="replace")

    runs = await until_ended(tenant, 5)

    ended = [(run["state"], run["reason"]) for run in runs]
    assert ended[-1] == ("succeeded", None)
    assert set(ended[:-1]) == {("cancelled", "replaced")}
    await assert_one_at_a_time(tenant, runs)
    first = await tenant.attempts(str(RunKey(runs[0]["scheduled_for"], runs[0]["schedule_id"])))
    assert [row["outcome"] for row in first] == ["cancelled"]


@pytest.mark.requirement("S33", "S50")
async def test_running_run_stops_when_cancelled(tenant: Tenant) -> None:
    target = {"task": {"name": "harebell.sleep", "args": {"seconds": 25}}}
    await tenant.put("long", {"now": True}, target)
    (running,) = await tenant.until_runs(1, "running")

    async def has_started() -> bool:
        return (await tenant.runs())[0]["started_at"] is not None

    await until(has_started, what="the start, which a renewal records")
    name = str(RunKey(running["scheduled_for"], running["schedule_id"]))
    response = await tenant.harebell.cancel_run(name)
    (run,) = await tenant.until_runs(1, "cancelled", within=5)

    assert response.status == "in_flight"
    assert (run["reason"], run["attempt"]) == ("cancelled", 1)
    assert [row["outcome"] for row in await tenant.attempts(name)] == ["cancelled"]


@pytest.mark.long
@pytest.mark.requirement("S50")
async def test_queue_policy_continues_when_the_executor_is_killed(
    faulty_tenant: Tenant, pool: Pool, target: Target
) -> None:
    for number in (1, 2):
        await pool.start(number, **SHORT_LEASES)
    hook = target.http("queued", sleep=1.2)
    when = {"every": "1s", "times": 4}
    await faulty_tenant.put("slow", when, hook, pool=pool.name, overlap="queue")
    await until_called(target, "queued", 2)
    (running,) = await faulty_tenant.runs("running")

    pool.stack.kill(holder_of(running))
    runs = await until_ended(faulty_tenant, 4)

    assert [run["state"] for run in runs] == ["succeeded"] * 4
    assert sum(run["attempt"] for run in runs) == 5, (
        "Only the run of the killed executor has a second attempt."
    )
    calls = [call for call in target.calls("queued") if call.ok]
    order = [call.scheduled_for for call in calls]
    assert order == sorted(order)
    await assert_one_at_a_time(faulty_tenant, runs)


@pytest.mark.long
@pytest.mark.requirement("S50")
async def test_overlap_decision_has_no_effect_when_the_executor_dies_before_the_commit(
    faulty_tenant: Tenant, pool: Pool
) -> None:
    victim = await start_with_kill(
        pool.stack,
        ServiceKind.EXECUTOR,
        1,
        "executor.before_overlap_commit",
        HAREBELL_POOL=pool.name,
    )
    task = {"task": {"name": "harebell.sleep", "args": {"seconds": 0.2}}}
    when = {"every": "1s", "times": 2}
    await faulty_tenant.put("short", when, task, pool=pool.name, overlap="queue")

    await until_dead(pool.stack, victim)
    await pool.start(2)
    runs = await until_ended(faulty_tenant, 2)

    assert [(run["state"], run["attempt"]) for run in runs] == [("succeeded", 1)] * 2
    await assert_one_at_a_time(faulty_tenant, runs)
