"""An hour at the desk, typed into a terminal: what docs/operations/dead-letters.md shows."""

import re
import xml.etree.ElementTree as ET
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import pytest
from tests.acceptance.pictures import picture_folder
from tests.acceptance.recording_target import Target
from tests.acceptance.stack import Stack, Tenant, until
from tests.acceptance.terminal import PROMPT, Terminal

pytestmark = [pytest.mark.broker, pytest.mark.postgres]

INVOICES: Final = 20  # runs that die of one cause
MAILS: Final = 3  # and of another
UUID: Final = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
TWICE: Final = {"max_attempts": 2, "backoff": {"base": "100ms"}}
SVG: Final = "{http://www.w3.org/2000/svg}"


@pytest.fixture
async def tenant(running_stack: Stack) -> AsyncIterator[Tenant]:
    """With a name that is good to read."""
    async with running_stack.tenant("billing") as opened:
        yield opened


@pytest.mark.requirement("S111", "S112")
async def test_an_hour_at_the_desk(tenant: Tenant, whole_target: Target, tmp_path: Path) -> None:
    pictures = picture_folder(tmp_path)
    terminal = Terminal(
        {"HAREBELL_AMQP_URL": tenant.stack.amqp_url, "HAREBELL_TENANT": tenant.name}
    )
    await much_dies(tenant, whole_target)

    output = await terminal.type("harebell dlq groups list")
    group = root_id(output, "http_503")
    output = await terminal.type(f"harebell dlq list --group {group} --limit 5")
    dead_letter = root_id(output, "http_503")
    groups = terminal.picture("desk-groups", pictures)
    await terminal.type(f"harebell dlq get {dead_letter}")
    shown = terminal.picture("desk-letter", pictures)

    await terminal.type(f'harebell dlq groups note {group} "their certificate, ticket 4715"')
    await terminal.type(f"harebell dlq replay --group {group} --dry-run")
    whole_target.fix("till")
    how = "--canary 3 --rate 50/s --abort-on-failure-ratio 0.2 --note mended --follow"
    output = await terminal.type(f"harebell dlq replay --group {group} {how}")
    assert "done" in output
    output = await terminal.type("harebell dlq groups list")
    assert group not in output
    replayed = terminal.picture("desk-replay", pictures)

    assert f"{PROMPT}harebell dlq groups list" in words(groups)
    assert group in words(groups)
    assert dead_letter in words(shown)
    assert "their certificate" in words(replayed)
    assert len(await tenant.runs("succeeded")) == INVOICES


async def much_dies(tenant: Tenant, target: Target) -> None:
    def put(key: str, what: dict[str, Any]) -> dict[str, Any]:
        return {"key": key, "when": {"now": True}, "target": what, "retry": TWICE}

    hook = target.http("invoices", broken="till")
    mail = {"task": {"name": "acme.mail", "args": {}}}
    await tenant.harebell.put_many(
        [
            *(put(f"invoice-{n}", hook) for n in range(INVOICES)),
            *(put(f"mail-{n}", mail) for n in range(MAILS)),
        ]
    )

    async def dead() -> bool:
        dead_letters = [each async for each in tenant.harebell.dead_letters()]
        return len(dead_letters) == INVOICES + MAILS

    await until(dead, what="dead letters")


def root_id(output: str, about: str) -> str:
    """In the first line about that."""
    line = next(line for line in output.splitlines() if about in line)
    found = UUID.search(line)
    assert found is not None, line
    return found[0]


def words(picture: Path) -> str:
    """What is written in it, and that it is a picture at all."""
    root = ET.parse(picture).getroot()  # noqa: S314  # ours
    return " ".join("".join(each.itertext()) for each in root.iter(f"{SVG}text")).replace(
        "\xa0", " "
    )
