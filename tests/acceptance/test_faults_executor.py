"""Executors that are killed or frozen during a call."""

import signal
from collections.abc import Callable

import pytest
from tests.acceptance.faults import (
    SHORT_LEASES,
    Pool,
    count_of,
    holder_of,
    send,
    start_with_kill,
    until_called,
    until_dead,
)
from tests.acceptance.recording_target import Target
from tests.acceptance.stack import Tenant, now
from tests.rig.polling import until

from harebell.dev.plan import ServiceKind

pytestmark = [pytest.mark.broker, pytest.mark.postgres]

LEASE = 15.0  # seconds; the default
MARGIN = 2.0  # seconds after the end of the lease


@pytest.mark.requirement("S82", "S95", "S96", "S98")
async def test_another_executor_finishes_the_run_of_a_killed_executor_as_attempt_two(
    faulty_tenant: Tenant,
    pool: Pool,
    target: Target,
    record_property: Callable[[str, object], None],
) -> None:
    await pool.start(1)
    await pool.start(2)
    hook = target.http("killed", sleep=3)
    await faulty_tenant.put("slow", {"now": True}, hook, pool=pool.name)
    await until_called(target, "killed")
    (running,) = await faulty_tenant.runs("running")

    killed_at = now()
    pool.stack.kill(holder_of(running))
    first, second = await until_called(target, "killed", 2)
    (run,) = await faulty_tenant.until_runs(1, "succeeded")

    recovered = (second.started_at - killed_at).total_seconds()
    record_property("recovered", f"{recovered:.2f} s after the kill")
    assert recovered < LEASE + MARGIN
    assert (first.attempt, second.attempt, run["attempt"]) == (1, 2, 2)
    assert second.token > first.token
    assert second.idempotency_key == first.idempotency_key == first.run_id
    assert holder_of(run) != holder_of(running)
    attempts = await faulty_tenant.attempts(first.run_id)
    assert [row["outcome"] for row in attempts] == ["lease_expired", "succeeded"]


@pytest.mark.long
@pytest.mark.requirement("S79", "S81", "S84", "S92", "S114", "ASK-14")
async def test_completion_is_fenced_when_an_executor_was_frozen_past_its_lease(
    faulty_tenant: Tenant, pool: Pool, target: Target
) -> None:
    members = [await pool.start(number, **SHORT_LEASES) for number in (1, 2)]
    hook = target.http("frozen", sleep=3)
    await faulty_tenant.put("slow", {"now": True}, hook, pool=pool.name)
    await until_called(target, "frozen")
    (running,) = await faulty_tenant.runs("running")
    frozen = next(member for member in members if member.name == holder_of(running))

    send(pool.stack, frozen.name, signal.SIGSTOP)
    await until_called(target, "frozen", 2)
    send(pool.stack, frozen.name, signal.SIGCONT)

    async def is_fenced() -> bool:
        return await count_of(frozen, "harebell_fenced_completions_total") == 1

    await until(is_fenced, what="a fenced completion")
    (run,) = await faulty_tenant.until_runs(1, "succeeded")

    assert "completion fenced" in pool.stack.log_of(frozen.name)
    assert (run["attempt"], holder_of(run) != frozen.name) == (2, True)
    first, second = target.calls("frozen")
    assert second.token > first.token
    attempts = await faulty_tenant.attempts(first.run_id)
    assert [row["outcome"] for row in attempts] == ["lease_expired", "succeeded"]


@pytest.mark.requirement("S78", "S79")
async def test_run_has_a_second_attempt_with_the_same_key_when_killed_before_the_completion(
    faulty_tenant: Tenant, pool: Pool, target: Target
) -> None:
    victim = await start_with_kill(
        pool.stack, ServiceKind.EXECUTOR, 1, "executor.before_complete", HAREBELL_POOL=pool.name
    )
    hook = target.http("unrecorded")
    await faulty_tenant.put("effect", {"now": True}, hook, pool=pool.name)

    await until_dead(pool.stack, victim)
    await pool.start(2)
    (run,) = await faulty_tenant.until_runs(1, "succeeded")

    first, second = target.calls("unrecorded")
    assert (first.ok, first.attempt, second.attempt, run["attempt"]) == (True, 1, 2, 2)
    assert first.idempotency_key == second.idempotency_key == first.run_id
    assert second.token > first.token
