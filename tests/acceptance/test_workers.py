"""Delegated runs on real servers: programs of another team complete them with their token."""

import asyncio
import signal
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import pytest
from tests.acceptance import tasks
from tests.acceptance.amqp_client import AmqpClient
from tests.acceptance.faults import (
    Pool,
    send,
    start_with_kill,
    until_dead,
)
from tests.acceptance.recording_target import Target
from tests.acceptance.stack import Tenant, now
from tests.acceptance.worker_queue import WorkerQueue, open_queue
from tests.rig.polling import until
from tests.rig.task_plugins import install

from harebell.client import CommandRejected
from harebell.dev.plan import ServiceKind

pytestmark = [pytest.mark.broker, pytest.mark.postgres]

SHORT_SECONDS: Final = 5.0
STEPS: Final = "tests.steps"


@pytest.fixture
async def queue(tenant: Tenant) -> AsyncIterator[WorkerQueue]:
    async with open_queue(tenant) as opened:
        yield opened


@pytest.fixture
async def faulty_queue(faulty_tenant: Tenant) -> AsyncIterator[WorkerQueue]:
    async with open_queue(faulty_tenant) as opened:
        yield opened


@pytest.mark.requirement("S59")
async def test_run_stays_running_without_a_slot_until_its_worker_completes_it(
    tenant: Tenant, queue: WorkerQueue
) -> None:
    await tenant.put("report", {"now": True}, queue.target(heartbeat="60s"))
    run_id, token, headers = await queue.next_call()
    (running,) = await tenant.until_runs(1, "running")

    first = await tenant.harebell.heartbeat(run_id, token)
    response = await tenant.harebell.complete_run(run_id, token, result={"rows": 3})
    (run,) = await tenant.until_runs(1, "succeeded")
    (attempt,) = await tenant.attempts(run_id)

    assert (running["lease_holder"], headers["Harebell-Heartbeat"]) == ("worker", "60")
    assert (first.status, first.state, first.stop_reason) == ("renewed", "running", None)
    assert first.lease_until is not None
    assert first.lease_until > now() + timedelta(seconds=50)
    assert (response.status, response.state) == ("completed", "succeeded")
    assert (run["seq"], run["attempt"]) == (running["seq"] + 1, 1)
    assert (attempt["outcome"], attempt["result"]) == ("succeeded", '{"rows":3}')
    assert attempt["lease_holder"] == "worker"


@pytest.mark.requirement("S59")
async def test_http_target_delegates_with_202_and_completes_with_another_status(
    tenant: Tenant, target: Target
) -> None:
    accepted = {"completion": "worker"}
    for name, status in (("delegated", 202), ("direct", 200)):
        hook = target.http(name, accepted=status)
        hook["http"] |= accepted
        await tenant.put(name, {"now": True}, hook)

    (direct,) = await tenant.until_runs(1, "succeeded")
    (delegated,) = await tenant.until_runs(1, "running")
    call = target.calls("delegated")[0]
    response = await tenant.harebell.complete_run(call.run_id, call.token)

    assert direct["lease_holder"] == "worker"
    assert str(delegated["schedule_id"]) == call.schedule_id
    assert response.state == "succeeded"


@pytest.mark.requirement("S59")
async def test_failure_of_a_worker_follows_the_retry_policy(
    tenant: Tenant, queue: WorkerQueue
) -> None:
    retry = {"max_attempts": 3, "backoff": {"base": "100ms", "jitter": "none"}}
    await tenant.put("report", {"now": True}, queue.target(), retry=retry)

    run_id, first_token, _ = await queue.next_call()
    failed = await tenant.harebell.fail_run(run_id, first_token, code="disk_full", reason="Full.")
    again_id, second_token, headers = await queue.next_call()
    dead = await tenant.harebell.fail_run(
        run_id, second_token, code="bad_input", reason="Never.", retryable=False
    )
    (run,) = await tenant.until_runs(1, "dead")

    assert (failed.status, failed.state) == ("failed", "retrying")
    assert (again_id, headers["Harebell-Attempt"]) == (run_id, "2")
    assert second_token > first_token
    assert (dead.state, run["reason"]) == ("dead", "bad_input")
    attempts = await tenant.attempts(run_id)
    assert [(row["error_code"], row["error"]) for row in attempts] == [
        ("disk_full", "Full."),
        ("bad_input", "Never."),
    ]


@pytest.mark.requirement("S59")
async def test_retry_after_of_a_worker_delays_the_next_attempt(
    tenant: Tenant, queue: WorkerQueue
) -> None:
    await tenant.put("report", {"now": True}, queue.target())
    run_id, token, _ = await queue.next_call()

    failed = await tenant.harebell.fail_run(run_id, token, code="busy", retry_after="1h")

    run = await tenant.run(run_id)
    assert failed.state == "retrying"
    assert run["next_attempt_at"] > now() + timedelta(minutes=59)


@pytest.mark.requirement("S59")
async def test_stale_or_foreign_report_is_rejected_with_its_reason(
    tenant: Tenant, queue: WorkerQueue
) -> None:
    await tenant.put("report", {"now": True}, queue.target())
    run_id, token, _ = await queue.next_call()

    with pytest.raises(CommandRejected) as stale:
        await tenant.harebell.complete_run(run_id, token - 1)
    async with tenant.stack.tenant(f"other-{tenant.name[:40]}") as other:
        with pytest.raises(CommandRejected) as foreign:
            await other.harebell.complete_run(run_id, token)
    with pytest.raises(CommandRejected) as reserved:
        await tenant.harebell.fail_run(run_id, token, code="expired")

    assert (await tenant.run(run_id))["state"] == "running"
    assert (stale.value.code, stale.value.field) == ("stale_token", "fencing_token")
    assert "Attempt 1 of the run has another token." in stale.value.reason
    assert (foreign.value.code, foreign.value.field) == ("not_found", "run_id")
    assert (reserved.value.code, reserved.value.field) == ("reserved_code", "code")


@pytest.mark.requirement("S59")
async def test_repeated_report_has_no_second_effect(tenant: Tenant, queue: WorkerQueue) -> None:
    await tenant.put("report", {"now": True}, queue.target())
    run_id, token, _ = await queue.next_call()

    first = await tenant.harebell.complete_run(run_id, token)
    second = await tenant.harebell.complete_run(run_id, token)
    with pytest.raises(CommandRejected) as failed:
        await tenant.harebell.fail_run(run_id, token, code="too_late")

    assert (first.status, second.status, second.state) == ("completed", "repeated", "succeeded")
    assert failed.value.code == "stale_token"
    assert "The run is succeeded after attempt 1." in failed.value.reason
    assert len(await tenant.attempts(run_id)) == 1


@pytest.mark.requirement("S59")
async def test_worker_of_an_ordinary_run_is_refused(tenant: Tenant, target: Target) -> None:
    await tenant.put("slow", {"now": True}, target.http("slow", sleep=2))
    call = await until(lambda: _first_call(target, "slow"))

    with pytest.raises(CommandRejected) as refused:
        await tenant.harebell.complete_run(call.run_id, call.token)

    await tenant.until_runs(1, "succeeded")
    assert refused.value.code == "not_delegated"


@pytest.mark.requirement("S59")
async def test_cancelled_run_reaches_its_worker_with_the_next_heartbeat(
    tenant: Tenant, queue: WorkerQueue
) -> None:
    await tenant.put("report", {"now": True}, queue.target())
    run_id, token, _ = await queue.next_call()
    cancelled = await tenant.harebell.cancel_run(run_id)

    heartbeat = await tenant.harebell.heartbeat(run_id, token)
    stopped = await tenant.harebell.fail_run(run_id, token, code="stopped")

    assert (cancelled.status, heartbeat.stop_reason) == ("in_flight", "cancelled")
    assert stopped.state == "cancelled"
    (attempt,) = await tenant.attempts(run_id)
    assert attempt["outcome"] == "cancelled"


@pytest.mark.requirement("S59")
async def test_next_run_of_the_overlap_slot_follows_the_completion_of_a_worker(
    tenant: Tenant, queue: WorkerQueue
) -> None:
    await tenant.put("report", {"after": "200d"}, queue.target(heartbeat="60s"), overlap="queue")
    for number in range(2):
        await tenant.harebell.trigger(key="report", request_id=f"{tenant.name}-{number}")
    first, token, _ = await queue.next_call()

    await tenant.harebell.complete_run(first, token)
    second, second_token, _ = await queue.next_call()
    await tenant.harebell.complete_run(second, second_token)

    assert first != second
    assert len(await tenant.until_runs(2, "succeeded")) == 2


@pytest.mark.requirement("S59")
@pytest.mark.long
async def test_missed_heartbeat_expires_the_lease_and_the_next_attempt_has_a_higher_token(
    tenant: Tenant, queue: WorkerQueue
) -> None:
    await tenant.put("report", {"now": True}, queue.target())
    run_id, token, _ = await queue.next_call()
    started_at = now()
    async with AmqpClient.open(tenant.stack.amqp_url, tenant.name) as client:
        events = await client.events("run.retrying")

        _, second_token, headers = await queue.next_call()
        with pytest.raises(CommandRejected) as stale:
            await tenant.harebell.complete_run(run_id, token)
        event = await asyncio.wait_for(events.get(), 30)

    first = (await tenant.attempts(run_id))[0]
    assert (now() - started_at).total_seconds() > SHORT_SECONDS
    assert (second_token > token, headers["Harebell-Attempt"]) == (True, "2")
    assert stale.value.code == "stale_token"
    assert (first["outcome"], first["error_code"]) == ("lease_expired", "lease_expired")
    assert "The worker sent no heartbeat" in first["error"]
    assert event["data"]["run_id"] == run_id


@pytest.mark.requirement("S59")
@pytest.mark.long
async def test_missed_heartbeat_blocks_the_schedule_with_on_unknown_block(
    tenant: Tenant, queue: WorkerQueue
) -> None:
    await tenant.put("report", {"now": True}, queue.target(), on_unknown="block")
    run_id, token, _ = await queue.next_call()

    await tenant.until_runs(1, "unresolved")
    with pytest.raises(CommandRejected) as late:
        await tenant.harebell.complete_run(run_id, token)

    assert late.value.code == "stale_token"


@pytest.mark.requirement("S59")
@pytest.mark.long
async def test_heartbeats_keep_the_run_beyond_its_lease_but_not_beyond_its_longest_duration(
    tenant: Tenant, queue: WorkerQueue
) -> None:
    target = queue.target(max_duration="12s")
    await tenant.put("report", {"now": True}, target, on_unknown="skip")
    run_id, token, _ = await queue.next_call()
    started_at, renewed_at = now(), now()

    with pytest.raises(CommandRejected):  # noqa: PT012  # the last heartbeat of many
        while True:
            await tenant.harebell.heartbeat(run_id, token)
            renewed_at = now()
            await asyncio.sleep(1)

    run = await tenant.run(run_id)
    assert (run["state"], run["reason"]) == ("skipped", "unknown_outcome")
    assert (renewed_at - started_at).total_seconds() > SHORT_SECONDS + 2


@pytest.mark.requirement("S59")
@pytest.mark.long
async def test_killed_executor_does_not_end_a_delegated_run(
    faulty_tenant: Tenant, faulty_queue: WorkerQueue, pool: Pool
) -> None:
    member = await pool.start(1)
    await faulty_tenant.put(
        "report", {"now": True}, faulty_queue.target(heartbeat="60s"), pool=pool.name
    )
    run_id, token, _ = await faulty_queue.next_call()

    send(pool.stack, member.name, signal.SIGKILL)
    await asyncio.sleep(4)  # longer than the silence after which an executor is gone
    response = await faulty_tenant.harebell.complete_run(run_id, token)

    assert response.state == "succeeded"
    assert len(await faulty_tenant.attempts(run_id)) == 1


@pytest.mark.requirement("S59")
@pytest.mark.long
async def test_run_has_a_second_attempt_when_its_executor_is_killed_before_the_call(
    faulty_tenant: Tenant, faulty_queue: WorkerQueue, pool: Pool
) -> None:
    victim = await start_with_kill(
        pool.stack, ServiceKind.EXECUTOR, 1, "executor.before_effect", HAREBELL_POOL=pool.name
    )
    await faulty_tenant.put("report", {"now": True}, faulty_queue.target(), pool=pool.name)
    await until_dead(pool.stack, victim)
    await pool.start(2)

    run_id, token, headers = await faulty_queue.next_call()
    await faulty_tenant.harebell.complete_run(run_id, token)

    attempts = await faulty_tenant.attempts(run_id)
    assert headers["Harebell-Attempt"] == "2"
    assert [row["outcome"] for row in attempts] == ["lease_expired", "succeeded"]


async def _first_call(target: Target, path: str) -> Any:
    calls = target.calls(path)
    return calls[0] if calls else None


@pytest.mark.requirement("S71", "S59")
async def test_progress_of_a_worker_is_shown_and_its_checkpoint_reaches_the_next_attempt(
    tenant: Tenant, queue: WorkerQueue
) -> None:
    retry = {"max_attempts": 3, "backoff": {"base": "100ms", "jitter": "none"}}
    await tenant.put("report", {"now": True}, queue.target(), retry=retry)
    run_id, token, first_headers = await queue.next_call()
    async with AmqpClient.open(tenant.stack.amqp_url, tenant.name) as client:
        events = await client.events("run.progressed")

        await tenant.harebell.heartbeat(run_id, token, percent=10, checkpoint={"page": 3})
        await tenant.harebell.heartbeat(run_id, token, percent=42, message="3 of 7")
        event = await asyncio.wait_for(events.get(), 30)
    shown = await tenant.harebell.run(run_id)
    await tenant.harebell.fail_run(run_id, token, code="disk_full")
    _, _, second_headers = await queue.next_call()
    later = await tenant.harebell.run(run_id)

    assert shown.progress is not None
    assert (shown.progress.text, shown.progress.is_stale) == ("42 %: 3 of 7", False)
    assert (shown.progress.percent, shown.progress.checkpoint) == (42, {"page": 3})
    assert (event["data"]["run_id"], event["data"]["percent"]) == (run_id, 10)
    assert "checkpoint" not in event["data"]
    assert "Harebell-Checkpoint" not in first_headers
    assert second_headers["Harebell-Checkpoint"] == '{"page":3}'
    assert later.progress is not None
    assert later.progress.is_stale  # of the first attempt
    assert "stale" in later.progress.text


@pytest.mark.requirement("S71")
@pytest.mark.long
async def test_task_continues_at_the_checkpoint_that_it_reported_before_its_failure(
    faulty_tenant: Tenant, pool: Pool, tmp_path: Path
) -> None:
    plugins = install(tmp_path, "steps", {STEPS: f"{tasks.__name__}:{tasks.steps.__name__}"})
    await pool.start(1, **plugins)
    retry = {"max_attempts": 2, "backoff": {"base": "100ms", "jitter": "none"}}
    target = {"task": {"name": STEPS}}
    await faulty_tenant.put("steps", {"now": True}, target, retry=retry, pool=pool.name)

    await faulty_tenant.until_runs(1, "succeeded")

    (listed,) = [each async for each in faulty_tenant.harebell.runs()]
    shown = await faulty_tenant.harebell.run(listed.run_id)
    attempts = await faulty_tenant.attempts(listed.run_id)
    assert [row["result"] for row in attempts] == [None, '{"continued_at":{"step":1}}']
    assert shown.progress is not None
    assert (shown.progress.checkpoint, shown.progress.percent) == ({"step": 1}, 50)
    assert not shown.progress.is_stale  # the run has ended
