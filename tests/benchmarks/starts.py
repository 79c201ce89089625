"""Starts, as those that were started wrote them down: files of doubles, due and started."""

import os
from array import array
from pathlib import Path
from typing import Final

from tests.acceptance.stack import until

DRAIN_TIMEOUT: Final = 120.0  # seconds for a backlog to drain

Starts = list[tuple[float, float]]  # due, started: seconds since 1970


async def taken(folder: Path, number: int) -> Starts:
    """Every start since the last time, once there are so many; in the order of starts."""

    async def all_of_them() -> Starts | None:
        found = read(folder)
        return found if len(found) >= number else None

    found = await until(all_of_them, within=DRAIN_TIMEOUT, what=f"{number} starts")
    assert found is not None
    forget(folder)
    return sorted(found, key=lambda each: each[1])


def read(folder: Path) -> Starts:
    found: Starts = []
    for file in folder.iterdir():
        numbers, whole = array("d"), file.read_bytes()
        numbers.frombytes(whole[: len(whole) // 16 * 16])
        found += zip(numbers[::2], numbers[1::2], strict=True)
    return found


def forget(folder: Path) -> None:
    for file in folder.iterdir():
        os.truncate(file, 0)  # not unlinked: who writes may keep it open
