"""Row 9: the desk of dead letters, killed in the midst of a replay."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from typing import Final

from tests.acceptance.stack import Tenant, until
from tests.chaos.environment import Scene
from tests.chaos.faults.processes import doomed
from tests.chaos.faults.registry import fault
from tests.chaos.result import Kind

from harebell.contract.errors import Transient
from harebell.dev.plan import ServiceKind as Service

DEAD: Final = 300  # runs
SOON: Final = 1.0  # seconds, at most, from the order to replay to the kill
DESK: Final = (Service.DLQ_INSPECTOR, 1)
RATE: Final = 60.0  # replayed runs a second of a job
STEPS: Final = ("replay_taken", "replay_published", "replay_committed")
ONCE: Final = {"max_attempts": 1}


@fault("9a", "kill -9 the inspector in the midst of a replay")
async def killed_at_random(scene: Scene) -> AsyncIterator[None]:
    async with scene.stack.tenant(f"{scene.tenant}-desk") as tenant:
        ids = await _dead(scene, tenant)
        replaying = asyncio.create_task(_replay(tenant, ids))
        await asyncio.sleep(scene.dice.uniform(0, SOON))
        await scene.kill(DESK)
        yield
        await scene.start(DESK)
        await replaying
        await _judge(scene, tenant)


@fault("9b", "kill -9 at dlq_inspector.before_commit")
async def killed_before_its_commit(scene: Scene) -> AsyncIterator[None]:
    async with scene.stack.tenant(f"{scene.tenant}-desk") as tenant:
        ids = await _dead(scene, tenant)
        await scene.kill(DESK)
        await scene.start(DESK, {"HAREBELL_FAILPOINT": "dlq_inspector.before_commit:kill"})
        replaying = asyncio.create_task(_replay(tenant, ids))
        yield
        await scene.kill(DESK)
        await scene.start(DESK)
        await replaying
        await _judge(scene, tenant)


@fault("9c", "kill -9 the inspector in the midst of a replay job")
async def killed_amid_a_job(scene: Scene) -> AsyncIterator[None]:
    async with scene.stack.tenant(f"{scene.tenant}-desk") as tenant:
        ids = await _dead(scene, tenant)
        job = str((await tenant.harebell.start_replay_job(ids=ids, rate=RATE)).id)
        await asyncio.sleep(scene.dice.uniform(0, DEAD / RATE))
        await scene.kill(DESK)
        yield
        await scene.start(DESK)
        await _judge_job(scene, tenant, job)


@fault("9d", "kill -9 at every step of a replay job")
async def killed_at_every_step_of_a_job(scene: Scene) -> AsyncIterator[None]:
    async with scene.stack.tenant(f"{scene.tenant}-desk") as tenant:
        ids = await _dead(scene, tenant)
        job = str((await tenant.harebell.start_replay_job(ids=ids, rate=RATE)).id)
        reached = 0.0
        for step in STEPS:
            async with doomed(scene, DESK, f"dlq_inspector.{step}"):
                reached += scene.notes["reached"]
        scene.notes["reached"] = reached
        yield
        await _judge_job(scene, tenant, job)


async def _judge_job(scene: Scene, tenant: Tenant, job: str) -> None:
    await _judge(scene, tenant)

    async def is_done() -> bool:
        return bool((await tenant.harebell.replay_job(job)).state == "done")

    await until(is_done, what="the end of the job")


async def _dead(scene: Scene, tenant: Tenant) -> list[str]:
    """So many dead letters, whose cause has been mended."""
    hook = scene.target.http(tenant.name, broken=tenant.name)
    bodies = [
        {"key": f"one-{k}", "when": {"now": True}, "target": hook, "retry": ONCE}
        for k in range(DEAD)
    ]
    await tenant.harebell.put_many(bodies)

    async def listed() -> list[str] | None:
        letters = [str(each.id) async for each in tenant.harebell.dead_letters()]
        return letters if len(letters) == DEAD else None

    ids = await until(listed, within=60, what="the dead letters")
    await asyncio.to_thread(scene.target.fix, tenant.name)
    assert ids is not None
    return ids


async def _replay(tenant: Tenant, ids: list[str]) -> None:
    """The same order again, until it has been answered."""
    for _ in range(10):
        try:
            await tenant.harebell.replay(ids)
        except Transient:
            continue
        return


async def _judge(scene: Scene, tenant: Tenant) -> None:
    """Every one was replayed exactly once: one more call, and it succeeded."""
    rows = await tenant.until_runs(DEAD, "succeeded", within=60)
    well = Counter(call.run_id for call in scene.target.calls(tenant.name) if call.ok)
    replay_number = Counter(row["replay_number"] for row in rows)
    doubled = [run for run, times in well.items() if times > 1]
    if doubled or len(well) != DEAD or replay_number != Counter({1: DEAD}):
        what = f"{len(well)} of {DEAD} ran, {len(doubled)} twice, replay_number {replay_number}"
        scene.find(Kind.DOUBLED if doubled else Kind.LOST, tenant.name, what)
