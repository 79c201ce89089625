"""Row 9: the dlq_inspector is killed during a replay or a replay job."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from typing import Final

from tests.acceptance.stack import Tenant
from tests.chaos.environment import Environment
from tests.chaos.faults.processes import killed_at
from tests.chaos.faults.registry import fault
from tests.chaos.result import FindingKind
from tests.rig.polling import until

from harebell.contract.errors import Transient
from harebell.dev.plan import ServiceKind

DEAD: Final = 300  # runs
MAX_KILL_DELAY: Final = 1.0  # seconds from the replay command to the kill
INSPECTOR: Final = (ServiceKind.DLQ_INSPECTOR, 1)
RATE: Final = 60.0  # replayed runs a second of a replay job
STEPS: Final = ("replay_taken", "replay_published", "replay_committed")
ONE_ATTEMPT: Final = {"max_attempts": 1}
LIST_TIMEOUT: Final = 60.0  # seconds for all dead letters
MAX_REQUESTS: Final = 10


@fault("9a", "kill -9 the inspector during a replay")
async def killed_at_random(environment: Environment) -> AsyncIterator[None]:
    async with environment.stack.tenant(f"{environment.tenant}-replay") as tenant:
        ids = await _put_dead_letters(environment, tenant)
        replaying = asyncio.create_task(_replay(tenant, ids))
        await asyncio.sleep(environment.random.uniform(0, MAX_KILL_DELAY))
        await environment.kill(INSPECTOR)
        yield
        await environment.start(INSPECTOR)
        await replaying
        await _check(environment, tenant)


@fault("9b", "kill -9 at dlq_inspector.before_commit")
async def killed_before_its_commit(environment: Environment) -> AsyncIterator[None]:
    async with environment.stack.tenant(f"{environment.tenant}-replay") as tenant:
        ids = await _put_dead_letters(environment, tenant)
        await environment.kill(INSPECTOR)
        failpoint = {"HAREBELL_FAILPOINT": "dlq_inspector.before_commit:kill"}
        await environment.start(INSPECTOR, failpoint)
        replaying = asyncio.create_task(_replay(tenant, ids))
        yield
        await environment.kill(INSPECTOR)
        await environment.start(INSPECTOR)
        await replaying
        await _check(environment, tenant)


@fault("9c", "kill -9 the inspector during a replay job")
async def killed_during_a_replay_job(environment: Environment) -> AsyncIterator[None]:
    async with environment.stack.tenant(f"{environment.tenant}-replay") as tenant:
        ids = await _put_dead_letters(environment, tenant)
        job = str((await tenant.harebell.start_replay_job(ids=ids, rate=RATE)).id)
        await asyncio.sleep(environment.random.uniform(0, DEAD / RATE))
        await environment.kill(INSPECTOR)
        yield
        await environment.start(INSPECTOR)
        await _check_replay_job(environment, tenant, job)


@fault("9d", "kill -9 at every step of a replay job")
async def killed_at_every_step_of_a_replay_job(environment: Environment) -> AsyncIterator[None]:
    async with environment.stack.tenant(f"{environment.tenant}-replay") as tenant:
        ids = await _put_dead_letters(environment, tenant)
        job = str((await tenant.harebell.start_replay_job(ids=ids, rate=RATE)).id)
        reached = 0.0
        for step in STEPS:
            async with killed_at(environment, INSPECTOR, f"dlq_inspector.{step}"):
                reached += environment.measurements["reached"]
        environment.measurements["reached"] = reached
        yield
        await _check_replay_job(environment, tenant, job)


async def _check_replay_job(environment: Environment, tenant: Tenant, job: str) -> None:
    await _check(environment, tenant)

    async def is_done() -> bool:
        return bool((await tenant.harebell.replay_job(job)).state == "done")

    await until(is_done, what="the end of the replay job")


async def _put_dead_letters(environment: Environment, tenant: Tenant) -> list[str]:
    """Return the ids of `DEAD` dead letters, whose target works again."""
    target = environment.target.http(tenant.name, broken=tenant.name)
    bodies = [
        {"key": f"one-{k}", "when": {"now": True}, "target": target, "retry": ONE_ATTEMPT}
        for k in range(DEAD)
    ]
    await tenant.harebell.put_many(bodies)

    async def all_ids() -> list[str] | None:
        ids = [str(each.id) async for each in tenant.harebell.dead_letters()]
        return ids if len(ids) == DEAD else None

    ids = await until(all_ids, within=LIST_TIMEOUT, what="the list of all dead letters")
    await asyncio.to_thread(environment.target.fix, tenant.name)
    assert ids is not None
    return ids


async def _replay(tenant: Tenant, ids: list[str]) -> None:
    """Send the replay command until it receives a response."""
    for _ in range(MAX_REQUESTS):
        try:
            await tenant.harebell.replay(ids)
        except Transient:
            continue
        return


async def _check(environment: Environment, tenant: Tenant) -> None:
    """Check that one replay of each dead letter called the target once and succeeded."""
    rows = await tenant.until_runs(DEAD, "succeeded", within=60)
    calls = environment.target.calls(tenant.name)
    succeeded = Counter(call.run_id for call in calls if call.ok)
    replay_numbers = Counter(row["replay_number"] for row in rows)
    repeated = [run for run, count in succeeded.items() if count > 1]
    if repeated or len(succeeded) != DEAD or replay_numbers != Counter({1: DEAD}):
        counts = f"{len(succeeded)} of {DEAD} ran, {len(repeated)} of them twice"
        kind = FindingKind.DUPLICATED if repeated else FindingKind.MISSING
        text = f"{counts}, replay numbers {replay_numbers}"
        environment.add_finding(kind, tenant.name, text)
