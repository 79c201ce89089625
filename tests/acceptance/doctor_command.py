"""The command `harebell doctor` in the tests, and the rows that it prints."""

import asyncio
import json
import sys
from typing import Final, TypeAlias

from tests.acceptance.stack import caller_environment

MAX_TIME: Final = 60.0  # seconds of a command on a busy machine
Found: TypeAlias = dict[str, list[dict[str, str]]]  # the rows of each check


async def run(*arguments: str, **environment: str) -> tuple[int | None, Found]:
    """Return the exit code and the rows of each check."""
    command = [sys.executable, "-m", "harebell.cli", "doctor", "--json", *arguments]
    process = await asyncio.create_subprocess_exec(
        *command, env=caller_environment() | environment, stdout=asyncio.subprocess.PIPE
    )
    output, _ = await asyncio.wait_for(process.communicate(), MAX_TIME)
    found: Found = {}
    for row in json.loads(output):
        found.setdefault(row["check"], []).append(row)
    return process.returncode, found


def results(found: Found, check: str) -> set[str]:
    return {row["result"] for row in found[check]}
