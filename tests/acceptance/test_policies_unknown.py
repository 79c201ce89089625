"""A run that was never heard of again, where `on_unknown` is `hold`: a person says what it was."""

import pytest
from tests.acceptance.faults import Pool, holder_of, until_called
from tests.acceptance.recording_target import Target
from tests.acceptance.stack import Tenant, until

pytestmark = [pytest.mark.broker, pytest.mark.postgres]

KINDS = {"succeeded": "succeeded", "skipped": "skipped", "retry": "succeeded"}


@pytest.fixture
async def held(faulty_tenant: Tenant, pool: Pool, target: Target) -> dict[str, str]:
    """One held run for each way to resolve it, by that way: their executor was killed."""
    await pool.start(1)
    for kind in KINDS:
        hook = target.http(f"held-{kind}", sleep=3)
        when = {"every": "1h", "start": "2026-01-01"}
        await faulty_tenant.put(kind, when, hook, pool=pool.name, on_unknown="hold")
    triggered = {kind: await faulty_tenant.harebell.trigger(key=kind) for kind in KINDS}
    for kind in KINDS:
        await until_called(target, f"held-{kind}")
    running = await faulty_tenant.runs("running")
    assert len(running) == len(KINDS)
    pool.stack.kill(holder_of(running[0]))
    await faulty_tenant.until_runs(len(KINDS), "held")
    await pool.start(2)
    return {kind: str(response.run_id) for kind, response in triggered.items()}


async def until_state(tenant: Tenant, key: str, state: str) -> None:
    async def so() -> bool:
        return bool((await tenant.harebell.schedule(key=key)).state == state)

    await until(so, what=f"schedule {key} being {state}")


async def until_ended(tenant: Tenant, run_id: str, state: str) -> None:
    async def so() -> bool:
        return bool((await tenant.run(run_id))["state"] == state)

    await until(so, what=f"run {run_id} being {state}")


@pytest.mark.requirement("S101")
async def test_a_run_of_unknown_outcome_holds_its_schedule_until_it_is_resolved_as_it_was(
    faulty_tenant: Tenant, target: Target, held: dict[str, str]
) -> None:
    listed = [run.run_id async for run in faulty_tenant.harebell.runs(state="held")]
    for kind in KINDS:
        await until_state(faulty_tenant, kind, "held")

    responses = {
        kind: await faulty_tenant.harebell.resolve_run(run, kind, note="asked the bank")
        for kind, run in held.items()
    }

    assert sorted(listed) == sorted(held.values())
    assert {response.status for response in responses.values()} == {"resolved"}
    for kind, run in held.items():
        await until_ended(faulty_tenant, run, KINDS[kind])
        await until_state(faulty_tenant, kind, "active")
    assert {kind: len(target.calls(f"held-{kind}")) for kind in KINDS} == {
        **dict.fromkeys(KINDS, 1),
        "retry": 2,
    }
    skipped = await faulty_tenant.run(held["skipped"])
    assert skipped["reason"] == "requested"
