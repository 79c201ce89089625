"""The demo's use of the `harebell` command: the real one, in a process of its own."""

import asyncio
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from harebell.contract.amqp_names import COMMANDS, JSON, message_key
from harebell.dev.errors import StackError

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


class DemoFailed(StackError):
    """A step did not work; `said` is what the program that did it wrote."""

    def __init__(self, step: str, said: str = "") -> None:
        super().__init__(f"{step}{f': {said}' if said else ''}")


TENANT = "default"
PROGRAM = "amqp-publish"
PUBLISH_S = 15.0  # what one publish may take
URL = "HAREBELL_AMQP_URL"


def require() -> None:
    """Raises `DemoFailed` when the program is not on this machine."""
    if shutil.which(PROGRAM) is None:
        raise DemoFailed(f"{PROGRAM} is not installed: apt-get install amqp-tools")


def command_line(verb: str, body: str) -> str:
    """For a shell that has the broker's URL in its environment."""
    return (
        f'{PROGRAM} --url="${URL}" -e {COMMANDS} -r {message_key(TENANT, verb)} -p -C {JSON} \\\n'
        f"  -b {shlex.quote(body)}"
    )


def publish(line: str, *, amqp_url: str) -> None:
    """Run the line as a person would, in a shell that knows nothing else."""
    done = subprocess.run(  # noqa: S603  # the command is ours
        ["/bin/sh", "-c", line],
        env={"PATH": os.environ.get("PATH", os.defpath), URL: amqp_url},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PUBLISH_S,
        check=False,
    )
    if done.returncode:
        raise DemoFailed(f"{PROGRAM} failed", done.stderr.strip())
