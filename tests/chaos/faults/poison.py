"""Row 24: a task that kills whoever executes it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Final

from tests.acceptance import tasks
from tests.chaos.environment import Scene
from tests.chaos.faults.registry import fault
from tests.chaos.result import Kind
from tests.rig.task_plugins import install

from harebell.dev.plan import ServiceKind as Service

ATTEMPTS: Final = 3
LOOK: Final = 0.2  # seconds between two looks at executors that may have died
PATIENCE: Final = 60.0  # seconds until the poison is a dead letter
TASKS: Final = {"chaos.poison": f"{tasks.__name__}:kill_executor"}


@fault("24", "a task that kills every executor that runs it", lapses=True)
async def poison(scene: Scene) -> AsyncIterator[None]:
    """It is given up after its attempts, and all else goes on: executors are started again."""
    folder = scene.stack.services.root / "poison"
    installed = await asyncio.to_thread(install, folder, "chaos", TASKS)
    executors = scene.all_of(Service.EXECUTOR)
    for executor in executors:
        await scene.stop(executor)
        await scene.start(executor, installed)

    async def supervise() -> None:
        while True:
            for executor in executors:
                if not scene.is_alive(executor):
                    await scene.start(executor, installed, ready=False)
            await asyncio.sleep(LOOK)

    supervising = asyncio.create_task(supervise())
    async with scene.stack.tenant(f"{scene.tenant}-poison") as tenant:
        task = {"task": {"name": "chaos.poison"}}
        await tenant.put("poison", {"now": True}, task, retry={"max_attempts": ATTEMPTS})
        yield
        with suppress(AssertionError):  # told below
            await tenant.until_runs(1, "dead", within=PATIENCE)
        ended = [(row["state"], row["attempt"]) for row in await tenant.runs()]
    supervising.cancel()
    if ended != [("dead", ATTEMPTS)]:
        scene.find(Kind.RECORD, "poison", f"ended as {ended}")
