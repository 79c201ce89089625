"""The programs of the demo: `amqp-publish` and the `harebell` command, in their own processes."""

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

COMMAND_TIMEOUT = 30.0  # seconds, including the start of the program
PREFIX = "HAREBELL_"


def display_line(*arguments: str) -> str:
    """Return the command as a user in this folder types it."""
    return shlex.join([os.path.relpath(_program()), *arguments])


async def harebell(*arguments: str, amqp_url: str) -> str:
    """Run the `harebell` command and return its output. Raise `DemoError` if it fails."""
    return await asyncio.to_thread(_run, [str(_program()), *arguments], amqp_url)


def _program() -> Path:
    """Return the path of the command next to this Python."""
    return Path(sys.executable).with_name("harebell")


def _run(command: Sequence[str], amqp_url: str) -> str:
    # The variables of the caller must not change the output of the command.
    environment = {name: value for name, value in os.environ.items() if not name.startswith(PREFIX)}
    completed = subprocess.run(  # noqa: S603  # fixed command
        command,
        env=environment | {f"{PREFIX}AMQP_URL": amqp_url},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=COMMAND_TIMEOUT,
        check=False,
    )
    if completed.returncode:
        raise DemoError(
            shlex.join(command), completed.stderr.strip() or f"exit {completed.returncode}"
        )
    return "\n".join(line.rstrip() for line in completed.stdout.splitlines())


class DemoError(StackError):
    """A failed step of the demo, with the error output of its program."""

    def __init__(self, step: str, output: str = "") -> None:
        super().__init__(f"{step} {output}".strip())


TENANT = "default"
PROGRAM = "amqp-publish"
PUBLISH_TIMEOUT = 15.0  # seconds
URL = "HAREBELL_AMQP_URL"


def check_installed() -> None:
    """Raise `DemoError` if `amqp-publish` is missing."""
    if shutil.which(PROGRAM) is None:
        raise DemoError(f"The program {PROGRAM} must be installed (apt-get install amqp-tools).")


def command_line(verb: str, body: str) -> str:
    """Return the command line for a shell with the URL of the broker in its environment."""
    return (
        f'{PROGRAM} --url="${URL}" -e {COMMANDS} -r {message_key(TENANT, verb)} -p -C {JSON} \\\n'
        f"  -b {shlex.quote(body)}"
    )


def publish(line: str, *, amqp_url: str) -> None:
    """Run the command line in a shell with no other variables."""
    completed = subprocess.run(  # noqa: S603  # fixed command
        ["/bin/sh", "-c", line],
        env={"PATH": os.environ.get("PATH", os.defpath), URL: amqp_url},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PUBLISH_TIMEOUT,
        check=False,
    )
    if completed.returncode:
        raise DemoError(f"The program {PROGRAM} failed.", completed.stderr.strip())
