"""Fairness between a large and a small tenant, and between a slow and a quick target."""

from collections.abc import Callable
from pathlib import Path
from statistics import median

import pytest
from tests.acceptance.faults import Pool, assert_each_once
from tests.acceptance.recording_target import Target
from tests.acceptance.stack import Stack, Tenant, time_in
from tests.rig.polling import WAIT_TIMEOUT

pytestmark = [pytest.mark.broker, pytest.mark.postgres]

LARGE_LOAD, SMALL_LOAD = 400, 20  # runs of two tenants with one due time
SLOW, QUICK = 60, 40  # runs of two targets with one due time
SLOTS = {"HAREBELL_SLOTS_NORMAL": "8"}

Record = Callable[[str, object], None]


async def put(tenant: Tenant, count: int, when: dict[str, str], **more: object) -> None:
    schedules = [{"key": f"one-{n}", "when": when, **more} for n in range(count)]
    responses = await tenant.harebell.put_many(schedules)
    assert all(response.ok for response in responses)


@pytest.mark.measures
@pytest.mark.long
@pytest.mark.requirement("ASK-12")
async def test_small_tenant_does_not_wait_behind_a_large_tenant(
    faulty_stack: Stack, faulty_tenant: Tenant, pool: Pool, target: Target, record_property: Record
) -> None:
    await pool.start(1, **SLOTS, HAREBELL_MAX_TARGET_SHARE="1")
    large_tenant, due = faulty_tenant, {"at": time_in(5).isoformat()}
    async with faulty_stack.tenant(f"{large_tenant.name[:50]}-small") as small_tenant:
        await put(
            large_tenant, LARGE_LOAD, due, target=target.http("large", sleep=0.1), pool=pool.name
        )
        await put(
            small_tenant, SMALL_LOAD, due, target=target.http("small", sleep=0.1), pool=pool.name
        )

        await small_tenant.until_runs(SMALL_LOAD, "succeeded", within=2 * WAIT_TIMEOUT)
        await large_tenant.until_runs(LARGE_LOAD, "succeeded", within=2 * WAIT_TIMEOUT)

    late = {path: [call.late for call in target.calls(path)] for path in ("large", "small")}
    record_property(
        "late", ", ".join(f"{path} {median(seconds):.2f} s" for path, seconds in late.items())
    )
    assert len(late["small"]) == SMALL_LOAD
    assert max(late["small"]) < median(late["large"])


@pytest.mark.measures
@pytest.mark.long
@pytest.mark.requirement("ASK-12")
async def test_slow_target_does_not_delay_a_quick_target_in_the_same_lane(
    faulty_tenant: Tenant, pool: Pool, target: Target, tmp_path: Path, record_property: Record
) -> None:
    """Put the runs of the slow target first, which would use every slot for 15 seconds."""
    await pool.start(1, **SLOTS)
    due = {"at": time_in(5).isoformat()}
    with Target.open(tmp_path / "quick.jsonl") as quick:
        hooks = [target.http("slow", sleep=2)] * SLOW + [quick.http("quick")] * QUICK
        schedules = [
            {"key": f"one-{n}", "when": due, "target": hook, "pool": pool.name}
            for n, hook in enumerate(hooks)
        ]
        responses = await faulty_tenant.harebell.put_many(schedules)
        assert all(response.ok for response in responses)

        runs = await faulty_tenant.until_runs(SLOW + QUICK, "succeeded", within=3 * WAIT_TIMEOUT)

        slow, fast = target.calls("slow"), quick.calls("quick")
    record_property("late", f"quick {max(c.late for c in fast):.2f} s, slow {slow[-1].late:.2f} s")
    assert_each_once([*slow, *fast], runs, SLOW + QUICK)
    assert max(call.late for call in fast) < median(call.late for call in slow)
