"""The starts that tasks recorded, in files of doubles: due, started."""

import os
from array import array
from pathlib import Path
from typing import Final

from tests.rig.polling import until

DRAIN_TIMEOUT: Final = 120.0  # seconds for a backlog to drain

Starts = list[tuple[float, float]]  # due, started: seconds since 1970


async def take_starts(folder: Path, number: int) -> Starts:
    """Wait for `number` new starts and return them in the order of their times."""

    async def find_all() -> Starts | None:
        found = read_starts(folder)
        return found if len(found) >= number else None

    found = await until(find_all, within=DRAIN_TIMEOUT, what=f"{number} starts")
    assert found is not None
    clear(folder)
    return sorted(found, key=lambda each: each[1])


def read_starts(folder: Path) -> Starts:
    found: Starts = []
    for file in folder.iterdir():
        numbers, whole = array("d"), file.read_bytes()
        numbers.frombytes(whole[: len(whole) // 16 * 16])
        found += zip(numbers[::2], numbers[1::2], strict=True)
    return found


def clear(folder: Path) -> None:
    for file in folder.iterdir():
        os.truncate(file, 0)  # the writer may keep the file open
