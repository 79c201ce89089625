"""Row 20: the time of day of one service jumps, while it runs, and jumps back."""

import asyncio
import struct
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

from tests.chaos.environment import Scene
from tests.chaos.faults.registry import fault

from harebell.dev.plan import ServiceKind, name_of

SOURCE: Final = Path(__file__).with_name("clock.c")
JUMPS: Final = {"an hour ahead": 3600, "two minutes ahead": 120, "an hour back": -3600}


def _shim(folder: Path) -> Path:
    """Compiled once a stack; needs a C compiler."""
    library = folder / "clock.so"
    if not library.exists():
        command = ["cc", "-shared", "-fPIC", "-O1", "-o", str(library), str(SOURCE), "-ldl"]
        subprocess.run(command, check=True, capture_output=True)  # noqa: S603  # ours
    return library


def _move(clock: Path, seconds: int) -> None:
    """In place: the process looks at the same memory."""
    if not clock.exists():
        clock.write_bytes(bytes(8))
    with clock.open("r+b") as file:
        file.write(struct.pack("l", seconds))


def _jumps(row: str, kind: ServiceKind, what: str, seconds: int) -> None:
    @fault(row, f"the clock of a {kind} jumps {what}, and back")
    async def strike(scene: Scene) -> AsyncIterator[None]:
        victim = scene.some(kind)
        folder = scene.stack.services.root
        clock = folder / f"{name_of(*victim)}.clock"
        _move(clock, 0)
        library = await asyncio.to_thread(_shim, folder)
        await scene.stop(victim)
        await scene.start(victim, {"LD_PRELOAD": str(library), "CHAOS_CLOCK": str(clock)})
        _move(clock, seconds)
        yield
        _move(clock, 0)


for _letters, _kind in (("abc", ServiceKind.TICKER), ("def", ServiceKind.EXECUTOR)):
    for _letter, (_what, _seconds) in zip(_letters, JUMPS.items(), strict=True):
        _jumps(f"20{_letter}", _kind, _what, _seconds)
