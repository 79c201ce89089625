"""Kills of an intake right after its responses, and with commands in flight."""

import asyncio

import pytest
from tests.acceptance.faults import Pool, assert_each_once, put_spread, start
from tests.acceptance.recording_target import Target
from tests.acceptance.stack import Tenant
from tests.rig.polling import until

from harebell.client import Client
from harebell.dev.plan import ServiceKind

pytestmark = [pytest.mark.broker, pytest.mark.postgres]

RUNS = 60


@pytest.mark.requirement("S25")
async def test_accepted_schedule_runs_once_when_intake_is_killed_afterwards(
    faulty_tenant: Tenant, pool: Pool, target: Target
) -> None:
    await pool.start()
    hook = target.http("accepted")

    expected = await put_spread(faulty_tenant, hook, RUNS, first=2, over=2, pool=pool.name)
    pool.stack.kill("intake-1")
    runs = await faulty_tenant.until_runs(RUNS, "succeeded")
    await start(pool.stack, ServiceKind.INTAKE)

    assert len(set(expected)) == RUNS
    assert_each_once(target.calls("accepted"), runs, RUNS)


async def test_command_gets_a_response_after_a_restart_of_a_killed_intake(
    faulty_tenant: Tenant, pool: Pool, target: Target
) -> None:
    await pool.start()
    hook = {"target": target.http("sent"), "pool": pool.name}

    async def put(harebell: Client, number: int) -> str:
        await asyncio.sleep(number * 0.02)  # so that some commands are in flight at the kill
        response = await harebell.put({"key": f"k-{number}", "when": {"after": "3s"}, **hook})
        return str(response.id)

    putting = [asyncio.create_task(put(faulty_tenant.harebell, n)) for n in range(RUNS)]
    await until(lambda: _any_done(putting))
    pool.stack.kill("intake-1")
    await start(pool.stack, ServiceKind.INTAKE)
    expected = await asyncio.gather(*putting)
    runs = await faulty_tenant.until_runs(RUNS, "succeeded")

    assert {str(run["schedule_id"]) for run in runs} == set(expected)
    assert_each_once(target.calls("sent"), runs, RUNS)


async def _any_done(tasks: "list[asyncio.Task[str]]") -> bool:
    return any(task.done() for task in tasks)
