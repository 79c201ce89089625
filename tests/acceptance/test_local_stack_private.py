"""The files and processes of the local stack: another user of the machine can read nothing."""

import asyncio
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import orjson
import pytest
from tests.rig.command_line import caller_environment

from harebell.client import Client
from harebell.dev.plan import ServiceCounts
from harebell.dev.stack import Stack
from harebell.dev.state import load_state
from harebell.dev.status import StackStatus

pytestmark = [pytest.mark.broker, pytest.mark.postgres]

NOBODY: Final = 65534  # the user and the group
MESSAGE: Final = "swordfish-of-a-message"
TOKEN: Final = "swordfish-of-the-shell"  # noqa: S105  # of no system
# Print, as one JSON object, the names in the given folders and the contents that are readable.
READER: Final = """
import json, os, sys
names, contents = [], []
for start in sys.argv[1:]:
    for folder, folders, files in os.walk(start):
        names += [os.path.join(folder, name) for name in folders + files]
        for name in files:
            try:
                with open(os.path.join(folder, name), "rb") as file:
                    contents.append(file.read().decode("latin-1"))
            except OSError:
                pass
print(json.dumps([names, contents]))
"""


@dataclass(kw_only=True)
class Opened:
    """A running stack in a folder that every user can reach."""

    root: Path
    status: StackStatus

    def read_as(self, user: int) -> tuple[list[str], str]:
        """Return the names and the contents that a user finds in the folders and in `/proc`."""
        database = load_state(self.root).database_directory
        processes = (f"/proc/{each.pid}" for each in self.status.processes if each.pid)
        environments = [f"{process}/environ" for process in processes]
        found = _run_as(user, [str(self.root), str(database)])
        readable = "".join(_cat_as(user, path) for path in environments)
        return found[0], "".join(found[1]) + readable


def _run_as(user: int, folders: list[str]) -> tuple[list[str], list[str]]:
    command = [sys.executable, "-I", "-S", "-c", READER, *folders]
    completed = subprocess.run(  # noqa: S603  # a fixed command
        command, user=user, group=user, extra_groups=[], cwd="/", capture_output=True, check=True
    )
    names, contents = orjson.loads(completed.stdout)
    return names, contents


def _cat_as(user: int, path: str) -> str:
    command = ["/bin/cat", path]
    completed = subprocess.run(  # noqa: S603  # a fixed command
        command, user=user, group=user, extra_groups=[], cwd="/", capture_output=True, check=False
    )
    return completed.stdout.decode("latin-1")


@pytest.fixture
def opened() -> Iterator[Opened]:
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        root = Path(folder) / "stack"
        environ = caller_environment() | {"CLOUD_TOKEN": TOKEN, "HAREBELL_LOG_FORMAT": "text"}
        stack = Stack(root, environ=environ)
        try:
            yield Opened(root=root, status=stack.start(ServiceCounts()))
        finally:
            stack.stop(wipe=True)


@pytest.mark.long
@pytest.mark.requirement("P15")
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can read as another user")
def test_another_user_reads_nothing_and_the_owner_reads_no_variable_of_the_shell(
    opened: Opened,
) -> None:
    async def put() -> None:
        async with Client.connect(opened.status.amqp_url, tenant="default") as client:
            target = {"http": {"url": "http://127.0.0.1:1/", "text": MESSAGE}}
            await client.put({"key": "private", "when": {"after": "1h"}, "target": target})

    asyncio.run(put())

    own_names, own_contents = opened.read_as(0)
    other_names, other_contents = opened.read_as(NOBODY)

    assert len(own_names) > 100
    assert MESSAGE in own_contents
    assert load_state(opened.root).password in own_contents
    assert "HAREBELL_LOG_FORMAT" in own_contents
    assert TOKEN not in own_contents
    assert (other_names, other_contents) == ([], "")
    assert opened.root.stat().st_mode & 0o777 == 0o700
