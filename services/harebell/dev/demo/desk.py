"""The demo's use of the `harebell` command: the real one, in a process of its own."""

import asyncio
import os
import shlex
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from harebell.dev.demo.errors import DemoFailed

COMMAND_S = 30.0  # what one command may take, starting included
PREFIX = "HAREBELL_"


def shown(*arguments: str) -> str:
    """As a person in this directory would type it."""
    return shlex.join([os.path.relpath(_program()), *arguments])


async def harebell(*arguments: str, amqp_url: str) -> str:
    """What it printed; raises `DemoFailed` when its exit code is not 0."""
    return await asyncio.to_thread(_run, [str(_program()), *arguments], amqp_url)


def _program() -> Path:
    """The one installed beside this Python."""
    return Path(sys.executable).with_name("harebell")


def _run(command: Sequence[str], amqp_url: str) -> str:
    # the caller's own settings of the command must not turn its tables into something else
    kept = {name: value for name, value in os.environ.items() if not name.startswith(PREFIX)}
    done = subprocess.run(  # noqa: S603  # the command is ours
        command,
        env=kept | {f"{PREFIX}AMQP_URL": amqp_url},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=COMMAND_S,
        check=False,
    )
    if done.returncode:
        raise DemoFailed(shlex.join(command), done.stderr.strip() or f"exit {done.returncode}")
    return "\n".join(line.rstrip() for line in done.stdout.splitlines())
