"""Row 24: a task that kills every executor that runs it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Final

from tests.acceptance import tasks
from tests.chaos.environment import Environment
from tests.chaos.faults.registry import fault
from tests.chaos.result import FindingKind
from tests.rig.task_plugins import install

from harebell.dev.plan import ServiceKind

ATTEMPTS: Final = 3
POLL_INTERVAL: Final = 0.2  # seconds between two checks for dead executors
DEATH_TIMEOUT: Final = 60.0  # seconds until the run is a dead letter
TASKS: Final = {"chaos.poison": f"{tasks.__name__}:kill_executor"}


@fault("24", "a task that kills every executor that runs it", can_expire_leases=True)
async def poison(environment: Environment) -> AsyncIterator[None]:
    """Check that the run is dead after its attempts. Dead executors start again."""
    folder = environment.stack.services.root / "poison"
    variables = await asyncio.to_thread(install, folder, "chaos", TASKS)
    executors = environment.members_of(ServiceKind.EXECUTOR)
    for executor in executors:
        await environment.stop(executor)
        await environment.start(executor, variables)

    async def supervise() -> None:
        while True:
            for executor in executors:
                if not environment.is_alive(executor):
                    await environment.start(executor, variables, ready=False)
            await asyncio.sleep(POLL_INTERVAL)

    supervising = asyncio.create_task(supervise())
    async with environment.stack.tenant(f"{environment.tenant}-poison") as tenant:
        task = {"task": {"name": "chaos.poison"}}
        await tenant.put("poison", {"now": True}, task, retry={"max_attempts": ATTEMPTS})
        yield
        with suppress(AssertionError):  # the check below finds the failure
            await tenant.until_runs(1, "dead", within=DEATH_TIMEOUT)
        ended = [(row["state"], row["attempt"]) for row in await tenant.runs()]
    supervising.cancel()
    if ended != [("dead", ATTEMPTS)]:
        environment.add_finding(FindingKind.INCONSISTENT, "poison", f"ended as {ended}")
