"""Row 20: the clock of one service jumps while the service runs, and jumps back."""

import asyncio
import struct
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

from tests.chaos.environment import Environment
from tests.chaos.faults.registry import fault

from harebell.dev.plan import ServiceKind, name_of

SOURCE: Final = Path(__file__).with_name("clock.c")
JUMPS: Final = {"an hour ahead": 3600, "two minutes ahead": 120, "an hour back": -3600}


def _library(folder: Path) -> Path:
    """Return the library that moves the clock. The first call compiles it with a C compiler."""
    library = folder / "clock.so"
    if not library.exists():
        command = ["cc", "-shared", "-fPIC", "-O1", "-o", str(library), str(SOURCE), "-ldl"]
        subprocess.run(command, check=True, capture_output=True)  # noqa: S603  # a fixed command
    return library


def _move(clock: Path, seconds: int) -> None:
    """Write the offset into the present file, which the process has mapped into its memory."""
    if not clock.exists():
        clock.write_bytes(bytes(8))
    with clock.open("r+b") as file:
        file.write(struct.pack("l", seconds))


def _jump(row: str, kind: ServiceKind, text: str, seconds: int) -> None:
    article = "an" if kind[0] in "aeiou" else "a"

    @fault(row, f"the clock of {article} {kind} jumps {text}, and back")
    async def inject(environment: Environment) -> AsyncIterator[None]:
        victim = environment.choose_member(kind)
        folder = environment.stack.services.root
        clock = folder / f"{name_of(*victim)}.clock"
        _move(clock, 0)
        library = await asyncio.to_thread(_library, folder)
        await environment.stop(victim)
        await environment.start(victim, {"LD_PRELOAD": str(library), "CHAOS_CLOCK": str(clock)})
        _move(clock, seconds)
        yield
        _move(clock, 0)


for _letters, _kind in (("abc", ServiceKind.TICKER), ("def", ServiceKind.EXECUTOR)):
    for _letter, (_text, _seconds) in zip(_letters, JUMPS.items(), strict=True):
        _jump(f"20{_letter}", _kind, _text, _seconds)
