"""How soon the runs of a lost executor go on elsewhere: hung, by their class; dead, at once."""

import asyncio
import signal
from collections.abc import Callable
from datetime import datetime

import pytest
from tests.acceptance.faults import SHORT_LEASES, Pool, holder_of, put_spread, send, until_called
from tests.acceptance.recording_target import Target
from tests.acceptance.stack import Tenant, now

pytestmark = [pytest.mark.broker, pytest.mark.postgres]

CRITICAL, NORMAL = 5.0, 15.0  # seconds: the leases by default
RENEWED = 2.0  # seconds at most since the last renewal when the holder was frozen
SLACK = 9.0  # seconds: a sweep, the way of a new ticket, and what a frozen link still swallows
DEAD = 10.0  # seconds; three is what to expect, and no normal lease lapses so soon
CROWD = 200
LONG = 60  # seconds that calls last: none ends by itself
TEN_LEASES = 30  # seconds: of critical runs, by SHORT

Record = Callable[[str, object], None]


async def recovered(target: Target, path: str, lost_at: datetime, times: int = 1) -> float:
    """Seconds from the loss of the holder until all these have been called again."""
    calls = await until_called(target, path, 2 * times)
    again = [call for call in calls if call.attempt == 2]
    assert len(again) == times
    assert {call.run_id for call in again} == {call.run_id for call in calls}
    return max((call.started_at - lost_at).total_seconds() for call in again)


async def put_both(tenant: Tenant, target: Target, pool: Pool, path: str) -> None:
    """A run of either class, both being called when this returns."""
    for class_ in ("critical", "normal"):
        hook = target.http(f"{path}-{class_}", sleep=LONG)
        options = {"class": class_, "timeout": f"{LONG}s", "pool": pool.name}
        await tenant.put(class_, {"now": True}, hook, **options)
        await until_called(target, f"{path}-{class_}")


@pytest.mark.requirement("S22", "S94")
async def test_hung_the_holder_loses_critical_runs_soon_and_normal_ones_later(
    faulty_tenant: Tenant, pool: Pool, target: Target, record_property: Record
) -> None:
    hung = await pool.start(1)
    await put_both(faulty_tenant, target, pool, "hung")
    await pool.start(2)

    lost_at = now()
    send(pool.stack, hung.name, signal.SIGSTOP)
    critical = await recovered(target, "hung-critical", lost_at)
    normal = await recovered(target, "hung-normal", lost_at)

    record_property("recovered", f"critical {critical:.2f} s, normal {normal:.2f} s")
    assert critical < CRITICAL + SLACK
    assert NORMAL - RENEWED < normal < NORMAL + SLACK


@pytest.mark.requirement("S22", "S94")
async def test_killed_outright_the_holder_loses_runs_of_both_classes_at_once(
    faulty_tenant: Tenant, pool: Pool, target: Target, record_property: Record
) -> None:
    killed = await pool.start(1)
    await put_both(faulty_tenant, target, pool, "killed-outright")
    await pool.start(2)

    lost_at = now()
    pool.stack.kill(killed.name)
    took = [
        await recovered(target, f"killed-outright-{class_}", lost_at)
        for class_ in ("critical", "normal")
    ]

    record_property("recovered", "critical {:.2f} s, normal {:.2f} s".format(*took))
    assert max(took) < DEAD < NORMAL


@pytest.mark.requirement("S94")
async def test_of_an_executor_killed_with_200_runs_in_flight_all_run_elsewhere_soon(
    faulty_tenant: Tenant, pool: Pool, target: Target, record_property: Record
) -> None:
    slots = {"HAREBELL_SLOTS_NORMAL": str(CROWD), "HAREBELL_MAX_TARGET_SHARE": "1"}
    killed = await pool.start(1, **slots)
    hook = target.http("crowd", sleep=LONG)
    options = {"timeout": f"{LONG}s", "pool": pool.name}
    await put_spread(faulty_tenant, hook, CROWD, first=1, over=1, **options)
    await until_called(target, "crowd", CROWD)
    await pool.start(2, **slots)

    lost_at = now()
    await asyncio.to_thread(pool.stack.kill, killed.name)
    last = await recovered(target, "crowd", lost_at, CROWD)
    running = await faulty_tenant.runs("running")

    record_property("recovered", f"all {CROWD} within {last:.2f} s of the kill")
    assert last < DEAD
    assert {holder_of(run) for run in running} == {"executor-2"}
    assert len(running) == CROWD


@pytest.mark.requirement("S83")
async def test_a_run_that_lasts_ten_leases_runs_once_while_its_executor_lives(
    faulty_tenant: Tenant, pool: Pool, target: Target
) -> None:
    for number in (1, 2):
        await pool.start(number, **SHORT_LEASES)
    hook = target.http("ten-leases", sleep=TEN_LEASES)
    options = {"class": "critical", "timeout": f"{LONG}s", "pool": pool.name}
    await faulty_tenant.put("long", {"now": True}, hook, **options)

    (run,) = await faulty_tenant.until_runs(1, "succeeded", within=LONG)

    assert (run["lease_seconds"], run["attempt"]) == (TEN_LEASES / 10, 1)
    assert len(target.calls("ten-leases")) == 1
