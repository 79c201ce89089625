"""Recovery of the runs of a lost executor: frozen, by lease class; killed, at once."""

import asyncio
import signal
from collections.abc import Callable
from datetime import datetime

import pytest
from tests.acceptance.faults import SHORT_LEASES, Pool, holder_of, put_spread, send, until_called
from tests.acceptance.recording_target import Target
from tests.acceptance.stack import Tenant, now

pytestmark = [pytest.mark.broker, pytest.mark.postgres]

CRITICAL_LEASE, NORMAL_LEASE = 5.0, 15.0  # seconds, by default
MAX_SINCE_RENEWAL = 2.0  # seconds between the last renewal and the freeze
MARGIN = 9.0  # seconds for a recovery pass, the new ticket and messages lost in a frozen connection
MAX_RECOVERY = 10.0  # seconds; three are usual, and a normal lease lasts longer
IN_FLIGHT = 200
CALL_DURATION = 60  # seconds, longer than the test
TEN_LEASES_DURATION = 30  # seconds, of critical runs with SHORT_LEASES

Record = Callable[[str, object], None]


async def recovery_time(target: Target, path: str, lost_at: datetime, times: int = 1) -> float:
    """Return the seconds from the loss of the executor to the last repeated call."""
    calls = await until_called(target, path, 2 * times)
    again = [call for call in calls if call.attempt == 2]
    assert len(again) == times
    assert {call.run_id for call in again} == {call.run_id for call in calls}
    return max((call.started_at - lost_at).total_seconds() for call in again)


async def put_both(tenant: Tenant, target: Target, pool: Pool, path: str) -> None:
    """Put a run of each lease class and wait until both calls have started."""
    for run_class in ("critical", "normal"):
        hook = target.http(f"{path}-{run_class}", sleep=CALL_DURATION)
        options = {"class": run_class, "timeout": f"{CALL_DURATION}s", "pool": pool.name}
        await tenant.put(run_class, {"now": True}, hook, **options)
        await until_called(target, f"{path}-{run_class}")


@pytest.mark.measures
@pytest.mark.long
@pytest.mark.requirement("S22", "S94")
async def test_frozen_executor_loses_critical_runs_before_normal_runs(
    faulty_tenant: Tenant, pool: Pool, target: Target, record_property: Record
) -> None:
    frozen = await pool.start(1)
    await put_both(faulty_tenant, target, pool, "hung")
    await pool.start(2)

    lost_at = now()
    send(pool.stack, frozen.name, signal.SIGSTOP)
    critical = await recovery_time(target, "hung-critical", lost_at)
    normal = await recovery_time(target, "hung-normal", lost_at)

    record_property("recovered", f"critical {critical:.2f} s, normal {normal:.2f} s")
    assert critical < CRITICAL_LEASE + MARGIN
    assert NORMAL_LEASE - MAX_SINCE_RENEWAL < normal < NORMAL_LEASE + MARGIN


@pytest.mark.measures
@pytest.mark.long
@pytest.mark.requirement("S22", "S94")
async def test_killed_executor_loses_runs_of_both_classes_at_once(
    faulty_tenant: Tenant, pool: Pool, target: Target, record_property: Record
) -> None:
    killed = await pool.start(1)
    await put_both(faulty_tenant, target, pool, "killed-outright")
    await pool.start(2)

    lost_at = now()
    pool.stack.kill(killed.name)
    times = [
        await recovery_time(target, f"killed-outright-{run_class}", lost_at)
        for run_class in ("critical", "normal")
    ]

    record_property("recovered", "critical {:.2f} s, normal {:.2f} s".format(*times))
    assert max(times) < MAX_RECOVERY < NORMAL_LEASE


@pytest.mark.measures
@pytest.mark.long
@pytest.mark.requirement("S94")
async def test_200_runs_of_a_killed_executor_run_on_another_executor_soon(
    faulty_tenant: Tenant, pool: Pool, target: Target, record_property: Record
) -> None:
    slots = {"HAREBELL_SLOTS_NORMAL": str(IN_FLIGHT), "HAREBELL_MAX_TARGET_SHARE": "1"}
    killed = await pool.start(1, **slots)
    hook = target.http("in-flight", sleep=CALL_DURATION)
    options = {"timeout": f"{CALL_DURATION}s", "pool": pool.name}
    await put_spread(faulty_tenant, hook, IN_FLIGHT, first=1, over=1, **options)
    await until_called(target, "in-flight", IN_FLIGHT)
    await pool.start(2, **slots)

    lost_at = now()
    await asyncio.to_thread(pool.stack.kill, killed.name)
    last = await recovery_time(target, "in-flight", lost_at, IN_FLIGHT)
    running = await faulty_tenant.runs("running")

    record_property("recovered", f"all {IN_FLIGHT} within {last:.2f} s of the kill")
    assert last < MAX_RECOVERY
    assert {holder_of(run) for run in running} == {"executor-2"}
    assert len(running) == IN_FLIGHT


@pytest.mark.long
@pytest.mark.requirement("S83")
async def test_run_that_lasts_ten_leases_executes_once_while_its_executor_lives(
    faulty_tenant: Tenant, pool: Pool, target: Target
) -> None:
    for number in (1, 2):
        await pool.start(number, **SHORT_LEASES)
    hook = target.http("ten-leases", sleep=TEN_LEASES_DURATION)
    options = {"class": "critical", "timeout": f"{CALL_DURATION}s", "pool": pool.name}
    await faulty_tenant.put("long", {"now": True}, hook, **options)

    (run,) = await faulty_tenant.until_runs(1, "succeeded", within=CALL_DURATION)

    assert (run["lease_seconds"], run["attempt"]) == (TEN_LEASES_DURATION / 10, 1)
    assert len(target.calls("ten-leases")) == 1
