"""Row 24: a task that kills whoever executes it."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from tests.chaos.faults.registry import fault
from tests.chaos.scene import Scene
from tests.chaos.verdict import Kind

from harebell.dev.plan import Kind as Service

ATTEMPTS: Final = 3
LOOK: Final = 0.2  # seconds between two looks at executors that may have died
PATIENCE: Final = 60.0  # seconds until the poison is a dead letter
MODULE: Final = "import os\n\n\ndef swallow():\n    os.kill(os.getpid(), 9)\n"
ENTRY: Final = "[harebell.tasks]\nchaos.poison = chaos_poison:swallow\n"
METADATA: Final = "Metadata-Version: 2.1\nName: chaos-poison\nVersion: 1\n"


def _install(folder: Path) -> None:
    """As a package would be: a module, and the entry point that names it."""
    details = folder / "chaos_poison-1.dist-info"
    details.mkdir(parents=True, exist_ok=True)
    (folder / "chaos_poison.py").write_text(MODULE)
    (details / "entry_points.txt").write_text(ENTRY)
    (details / "METADATA").write_text(METADATA)


@fault("24", "a task that kills every executor that runs it", lapses=True)
async def poison(scene: Scene) -> AsyncIterator[None]:
    """It is given up after its attempts, and all else goes on: executors are started again."""
    folder = scene.stack.services.root / "poison"
    await asyncio.to_thread(_install, folder)
    installed = {"PYTHONPATH": os.pathsep.join([str(folder), *sys.path])}
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
