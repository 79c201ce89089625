"""The command `harebell` in a process of its own, and the end of the processes of a test."""

import asyncio
import os
import sys
from asyncio.subprocess import PIPE, Process
from typing import Final, NamedTuple

MAX_TIME: Final = 60.0  # seconds of a command on a busy machine


class Done(NamedTuple):
    """An ended command: its exit code, its output and its messages."""

    code: int
    output: str
    messages: str


def caller_environment() -> dict[str, str]:
    """Return the environment without the variables of another stack, with the import paths."""
    variables = {
        name: text for name, text in os.environ.items() if not name.startswith("HAREBELL_")
    }
    return variables | {"PYTHONPATH": os.pathsep.join(sys.path)}


async def harebell(*words: str, stdin: str = "", **variables: str) -> Done:
    """Run a command with these variables, and without any other variable of Harebell."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "harebell.cli",
        *words,
        env=caller_environment() | variables,
        stdin=PIPE,
        stdout=PIPE,
        stderr=PIPE,
    )
    return await until_ended(process, stdin=stdin)


async def until_ended(process: Process, *, stdin: str = "") -> Done:
    """Wait for a process. One that exceeds its time is killed, and does not outlive its test."""
    try:
        async with asyncio.timeout(MAX_TIME):
            output, messages = await process.communicate(stdin.encode() or None)
    finally:
        code = await end(process)
    return Done(code, output.decode(), (messages or b"").decode())


async def end(process: Process) -> int:
    """Kill a process that still runs, and return its exit code."""
    if process.returncode is None:
        process.kill()
    return await process.wait()
