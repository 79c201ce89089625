"""Concurrency labels: a bounded number of runs, in the order of due times, over all executors."""

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from uuid import UUID

import pytest
from tests.acceptance.faults import SHORT_LEASES, Pool, holder_of, until_called
from tests.acceptance.recording_target import Call, Target
from tests.acceptance.stack import Tenant, time_in
from tests.acceptance.worker_queue import open_queue
from tests.rig.polling import WAIT_TIMEOUT, until

from harebell.client import CommandRejected

pytestmark = [pytest.mark.broker, pytest.mark.postgres]

LIMIT = 2
LABEL = {"label": "tenant-db-7", "limit": LIMIT}
ONE = {"label": "one", "limit": 1}


async def until_waiting(tenant: Tenant, count: int) -> None:
    """Wait until `count` runs of the tenant wait for their label."""

    async def are_waiting() -> bool:
        found = [run["reason"] for run in await tenant.runs("staged")]
        return found.count("waiting_for_label") == count

    await until(are_waiting, what=f"{count} runs that wait for the label")


def most_at_once(calls: Sequence[Call]) -> int:
    """Return the largest number of simultaneous calls. A call without an end is not among them."""
    spans = [(each.started_at, each.finished_at) for each in calls if each.finished_at is not None]
    return max(sum(began <= at < ended for began, ended in spans) for at, _ in spans)


@pytest.mark.requirement("ASK-13")
async def test_label_bounds_the_runs_of_two_executors_and_serves_the_first_due_first(
    tenant: Tenant, target: Target
) -> None:
    """The stack has two executors, and each run has a schedule of its own."""
    base = time_in(2)
    schedules = [
        {
            "key": f"labelled-{n}",
            "when": {"at": (base + timedelta(milliseconds=100 * n)).isoformat()},
            "concurrency": LABEL,
            "target": target.http("labelled", sleep=0.5),
        }
        for n in range(8)
    ]
    other = {"key": "other", "when": {"at": base.isoformat()}, "target": target.http("other")}
    responses = await tenant.harebell.put_many([*schedules, other])
    assert all(response.ok for response in responses)

    async def is_waiting() -> bool:
        return "waiting_for_label" in {run["reason"] for run in await tenant.runs("staged")}

    await until(is_waiting, what="a run that waits for the label")
    runs = await tenant.until_runs(9, "succeeded")

    calls = target.calls("labelled")
    assert most_at_once(calls) == LIMIT
    order = [call.scheduled_for for call in sorted(calls, key=lambda each: each.started_at)]
    assert all(abs(order.index(at) - place) < LIMIT for place, at in enumerate(sorted(order)))
    assert {run["attempt"] for run in runs} == {1}
    assert target.calls("other")[0].late < min(call.late for call in calls[LIMIT:]) + 1


@pytest.mark.requirement("ASK-13")
async def test_waiting_run_is_explained_and_leaves_the_line_when_cancelled(
    tenant: Tenant, target: Target
) -> None:
    label = {"concurrency": ONE}
    await tenant.put("first", {"now": True}, target.http("first", sleep=3), **label)
    await until_called(target, "first")
    id_ = await tenant.put("second", {"now": True}, target.http("second"), **label)
    await tenant.put("third", {"now": True}, target.http("third"), **label)
    await until_waiting(tenant, 2)
    second = next(run for run in await tenant.runs("staged") if str(run["schedule_id"]) == id_)
    name = f"{second['schedule_id']}@{second['scheduled_for']:%Y%m%dT%H%M%S}"
    run_id = f"{name}{second['scheduled_for'].microsecond // 1000:03d}Z"
    (holder,) = {call.run_id for call in target.calls("first")}
    shown = await tenant.harebell.run(run_id)
    why = await tenant.harebell.why(key="second", at=second["scheduled_for"])
    await tenant.harebell.cancel_run(run_id)
    runs = await tenant.until_runs(2, "succeeded")

    assert shown.reason == "waiting_for_label"
    assert (why.verdict, why.reason) == ("will_run", "waiting_for_label")
    assert why.text.endswith(
        "The concurrency label is one with the limit 1. "
        f"These running runs have its slots: {holder}."
    )
    assert len(runs) == 2
    assert len(target.calls("second")) + len(target.calls("third")) == 1


@pytest.mark.requirement("ASK-13", "S59")
async def test_delegated_run_keeps_its_slot_until_its_worker_completes_it(
    tenant: Tenant, target: Target
) -> None:
    async with open_queue(tenant) as queue:
        await tenant.put("work", {"now": True}, queue.target(heartbeat="60s"), concurrency=ONE)
        run_id, token, _ = await queue.next_call()
        await tenant.until_runs(1, "running")
        await tenant.put("next", {"now": True}, target.http("next"), concurrency=ONE)
        await until_waiting(tenant, 1)

        heartbeat = await tenant.harebell.heartbeat(run_id, token)
        waiting = await tenant.runs("staged")
        await tenant.harebell.complete_run(run_id, token)
        await tenant.until_runs(2, "succeeded")

    assert heartbeat.status == "renewed"
    assert [run["reason"] for run in waiting] == ["waiting_for_label"]
    assert len(target.calls("next")) == 1


@pytest.mark.long
@pytest.mark.requirement("ASK-13", "S59")
async def test_expired_lease_of_a_worker_frees_the_slot_of_its_run(
    tenant: Tenant, target: Target
) -> None:
    async with open_queue(tenant) as queue:
        await tenant.put("work", {"now": True}, queue.target(), concurrency=ONE, on_unknown="block")
        run_id, token, _ = await queue.next_call()
        await tenant.until_runs(1, "running")
        await tenant.put("next", {"now": True}, target.http("next"), concurrency=ONE)
        await until_waiting(tenant, 1)

        await tenant.until_runs(1, "succeeded", within=2 * WAIT_TIMEOUT)
        with pytest.raises(CommandRejected) as late:
            await tenant.harebell.complete_run(run_id, token)

    assert [run["state"] for run in await tenant.runs() if str(run["schedule_id"]) in run_id] == [
        "unresolved"
    ]
    assert late.value.code == "stale_token"


@pytest.mark.requirement("ASK-13")
async def test_replay_of_a_dead_letter_takes_a_slot(tenant: Tenant, target: Target) -> None:
    broken = target.http("again", broken="label")
    retry = {"max_attempts": 1}
    await tenant.put("again", {"now": True}, broken, concurrency=ONE, retry=retry)
    await tenant.until_runs(1, "dead")

    async def find_dead_letters() -> list[UUID]:
        return [each.id async for each in tenant.harebell.dead_letters()]

    dead_letters = await until(find_dead_letters, what="the dead letter")
    target.fix("label")
    async with open_queue(tenant) as queue:
        await tenant.put("first", {"now": True}, queue.target(heartbeat="60s"), concurrency=ONE)
        run_id, token, _ = await queue.next_call()

        await tenant.harebell.replay(dead_letters)
        await until_waiting(tenant, 1)
        before = len(target.calls("again"))
        await tenant.harebell.complete_run(run_id, token)
        await tenant.until_runs(2, "succeeded")

    assert (before, len(target.calls("again"))) == (1, 2)


@pytest.mark.requirement("ASK-13", "S50")
async def test_run_waits_for_its_overlap_slot_before_its_label(
    tenant: Tenant, target: Target
) -> None:
    """The second run of `queued` joins the line of the label only after the first run's end."""
    queued = target.http("queued", sleep=1)
    await tenant.put("queued", {"after": "200d"}, queued, concurrency=ONE, overlap="queue")

    async def reasons() -> bool:
        found = sorted(str(run["reason"]) for run in await tenant.runs("staged") if run["origin"])
        return found == ["waiting_for_label", "waiting_for_overlap"]

    async with open_queue(tenant) as queue:
        await tenant.put("busy", {"now": True}, queue.target(heartbeat="60s"), concurrency=ONE)
        run_id, token, _ = await queue.next_call()
        for number in range(2):
            await tenant.harebell.trigger(key="queued", request_id=f"{tenant.name}-{number}")
        await until(reasons, what="a run that waits for the label and one for the overlap slot")
        before = target.calls("queued")
        await tenant.harebell.complete_run(run_id, token)
        await tenant.until_runs(3, "succeeded")

    calls = target.calls("queued")
    assert (before, len(calls), most_at_once(calls)) == ([], 2, 1)


@pytest.mark.requirement("ASK-13")
async def test_intake_rejects_a_label_or_a_limit_that_is_out_of_bounds(
    tenant: Tenant, target: Target
) -> None:
    for concurrency, field in (
        ({"label": "", "limit": 1}, "concurrency.label"),
        ({"label": "x" * 129, "limit": 1}, "concurrency.label"),
        ({"label": "with space", "limit": 1}, "concurrency.label"),
        ({"label": "db", "limit": 0}, "concurrency.limit"),
        ({"label": "db", "limit": 1001}, "concurrency.limit"),
    ):
        with pytest.raises(CommandRejected) as raised:
            await tenant.put("bad", {"now": True}, target.http("x"), concurrency=concurrency)
        assert raised.value.field == field


@pytest.mark.long
@pytest.mark.requirement("ASK-13")
async def test_slots_of_a_killed_executor_come_back(
    faulty_tenant: Tenant, pool: Pool, target: Target
) -> None:
    for number in (1, 2):
        await pool.start(number, **SHORT_LEASES)
    hook = target.http("labelled", sleep=1.0)
    when = {"at": time_in(1).isoformat()}
    await asyncio.gather(
        *(
            faulty_tenant.put(f"one-{n}", when, hook, pool=pool.name, concurrency=LABEL)
            for n in range(6)
        )
    )
    await until_called(target, "labelled", LIMIT)
    running = await faulty_tenant.runs("running")

    pool.stack.kill(holder_of(running[0]))
    runs = await faulty_tenant.until_runs(6, "succeeded", within=2 * WAIT_TIMEOUT)

    lost = [run for run in runs if run["attempt"] > 1]
    calls = target.calls("labelled")
    assert 1 <= len(lost) <= LIMIT
    assert len([call for call in calls if call.ok]) >= len(runs)
    holders = {(await faulty_tenant.attempts(str(call.run_id)))[-1]["outcome"] for call in calls}
    assert holders == {"succeeded"}
    assert most_at_once([call for call in calls if call.ok]) <= LIMIT
