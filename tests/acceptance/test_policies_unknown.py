"""Runs with an unknown outcome and `on_unknown` set to `block`: a person resolves them."""

import pytest
from tests.acceptance.faults import Pool, holder_of, until_called
from tests.acceptance.recording_target import Target
from tests.acceptance.stack import Tenant
from tests.rig.polling import until

pytestmark = [pytest.mark.broker, pytest.mark.postgres]

KINDS = {"succeeded": "succeeded", "skipped": "skipped", "retry": "succeeded"}


@pytest.fixture
async def unresolved(faulty_tenant: Tenant, pool: Pool, target: Target) -> dict[str, str]:
    """Kill an executor and return one unresolved run for each way to resolve it."""
    await pool.start(1)
    for kind in KINDS:
        hook = target.http(f"unknown-{kind}", sleep=3)
        when = {"every": "1h"}  # no run of its own during the test
        await faulty_tenant.put(kind, when, hook, pool=pool.name, on_unknown="block")
    triggered = {kind: await faulty_tenant.harebell.trigger(key=kind) for kind in KINDS}
    for kind in KINDS:
        await until_called(target, f"unknown-{kind}")
    running = await faulty_tenant.runs("running")
    assert len(running) == len(KINDS)
    pool.stack.kill(holder_of(running[0]))
    await faulty_tenant.until_runs(len(KINDS), "unresolved")
    await pool.start(2)
    return {kind: str(response.run_id) for kind, response in triggered.items()}


async def until_state(tenant: Tenant, key: str, state: str) -> None:
    async def is_reached() -> bool:
        return bool((await tenant.harebell.schedule(key=key)).state == state)

    await until(is_reached, what=f"schedule {key} being {state}")


async def until_ended(tenant: Tenant, run_id: str, state: str) -> None:
    async def is_reached() -> bool:
        return bool((await tenant.run(run_id))["state"] == state)

    await until(is_reached, what=f"run {run_id} being {state}")


@pytest.mark.requirement("S101")
async def test_unresolved_run_blocks_its_schedule_until_a_person_resolves_it(
    faulty_tenant: Tenant, target: Target, unresolved: dict[str, str]
) -> None:
    listed = [run.run_id async for run in faulty_tenant.harebell.runs(state="unresolved")]
    for kind in KINDS:
        await until_state(faulty_tenant, kind, "blocked")

    responses = {
        kind: await faulty_tenant.harebell.resolve_run(run, kind, note="the bank confirmed")
        for kind, run in unresolved.items()
    }

    assert sorted(listed) == sorted(unresolved.values())
    assert {response.status for response in responses.values()} == {"resolved"}
    for kind, run in unresolved.items():
        await until_ended(faulty_tenant, run, KINDS[kind])
        await until_state(faulty_tenant, kind, "active")
    assert {kind: len(target.calls(f"unknown-{kind}")) for kind in KINDS} == {
        **dict.fromkeys(KINDS, 1),
        "retry": 2,
    }
    skipped = await faulty_tenant.run(unresolved["skipped"])
    assert skipped["reason"] == "manual"
