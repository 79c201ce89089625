"""The tutorial and the guides: every command and every JSON block, from the pages themselves.

The page runner describes the comments that state what a test does with a block.
"""

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest
from tests.acceptance.page_runner import PageRunner, blocks_of_page
from tests.acceptance.stack import Stack
from tests.acceptance.stack_pool import StackPool
from tests.rig.command_line import caller_environment
from tests.rig.node_packages import installed_packages
from tests.rig.servers import as_role

from harebell.client import Client
from harebell.dev.plan import ServiceCounts

pytestmark = [pytest.mark.broker, pytest.mark.postgres, pytest.mark.long]

DOCS: Final = Path(__file__).parents[2] / "docs"
GUIDES: Final = sorted((DOCS / "guides").glob("*.md"))
TUTORIAL: Final = ("first-schedule.md", "first-dead-letter.md")
STOP_TIMEOUT: Final = 120.0  # seconds
# Debian's packages of the clients. A reader installs them with the tools of the language.
LANGUAGES: Final = {
    "GO111MODULE": "off",
    "GOPATH": "/usr/share/gocode",
    "CLASSPATH": ":".join(
        f"/usr/share/java/{name}.jar" for name in ("amqp-client", "slf4j-api", "slf4j-nop")
    ),
}


def environment(folder: Path, **variables: str) -> dict[str, str]:
    """Return the environment of a person in a new terminal, with `harebell` in the path."""
    kept = caller_environment()
    return {
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), kept["PATH"]]),
        "HOME": kept.get("HOME", "/root"),
        "PYTHONPATH": kept["PYTHONPATH"],
        "COLUMNS": "200",
        "GOCACHE": str(folder / "go-cache"),
        **LANGUAGES,
        **variables,
    }


@pytest.fixture(scope="module")
def page_stack(stacks: StackPool) -> Stack:
    """Return a stack for all guides, whose schedules have different keys."""
    return stacks.take(ServiceCounts())


@pytest.mark.parametrize("page", GUIDES, ids=lambda page: page.stem)
def test_guide_does_what_it_states(page: Path, page_stack: Stack, tmp_path: Path) -> None:
    def put(text: str) -> None:
        asyncio.run(put_schedules(page_stack.amqp_url, text))

    variables = {"HAREBELL_AMQP_URL": page_stack.amqp_url}
    if "harebell.executor" in page.read_text():  # the other pages need only the broker
        variables["HAREBELL_DATABASE_URL"] = as_role(page_stack.database_url, "executor")
    runner = PageRunner(
        name=page.name,
        folder=tmp_path,
        environment=environment(tmp_path, **variables),
        put=put,
    )
    if "needs=node" in page.read_text():
        packages = installed_packages(os.environ)
        (tmp_path / "node_modules").symlink_to(packages / "node_modules")

    execute(runner, page)

    if runner.omitted:
        pytest.skip(f"These programs and files are missing: {', '.join(runner.omitted)}.")


def test_tutorial_leads_from_an_empty_folder_to_a_replayed_run(tmp_path: Path) -> None:
    runner = PageRunner(
        name="tutorial", folder=tmp_path, environment=environment(tmp_path), put=pytest.fail
    )

    try:
        for name in TUTORIAL:
            runner.name = name
            execute(runner, DOCS / "tutorial" / name, closes=False)
    finally:
        runner.close()
        stop = [sys.executable, "-m", "harebell.cli", "dev", "stop", "--wipe"]
        subprocess.run(  # noqa: S603  # a fixed command
            stop, cwd=tmp_path, env=environment(tmp_path), timeout=STOP_TIMEOUT, check=True
        )


def execute(runner: PageRunner, page: Path, *, closes: bool = True) -> None:
    """Execute the blocks of a page. With `closes`, end the programs that the page started."""
    try:
        for block in blocks_of_page(page.read_text(encoding="utf-8")):
            runner.run(block)
    finally:
        if closes:
            runner.close()


async def put_schedules(amqp_url: str, text: str) -> None:
    """Put the schedules of a JSON block. Raise `CommandRejected` if one is refused.

    Several pages may use the same key in one stack.
    """
    value = json.loads(text)
    async with Client.connect(amqp_url) as client:
        for schedule in value if isinstance(value, list) else [value]:
            await client.put({"expected_version": "any", "revive": True, **schedule})
