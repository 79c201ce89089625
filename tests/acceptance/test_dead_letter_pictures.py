"""A session with `harebell dlq` in a terminal, for the pictures of the dead letter guide."""

import re
import xml.etree.ElementTree as ET
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import pytest
from tests.acceptance.pictures import picture_folder
from tests.acceptance.recording_target import Target
from tests.acceptance.stack import Stack, Tenant
from tests.acceptance.terminal import PROMPT, Terminal
from tests.rig.polling import until

pytestmark = [pytest.mark.broker, pytest.mark.postgres, pytest.mark.long]

INVOICES: Final = 20  # runs that die of the same failure
MAILS: Final = 3  # runs that die of another failure
UUID: Final = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
TWO_ATTEMPTS: Final = {"max_attempts": 2, "backoff": {"base": "100ms"}}
SVG: Final = "{http://www.w3.org/2000/svg}"


@pytest.fixture
async def tenant(running_stack: Stack) -> AsyncIterator[Tenant]:
    """Yield a tenant with a readable name for the pictures."""
    async with running_stack.tenant("billing") as opened:
        yield opened


@pytest.mark.requirement("S111", "S112")
async def test_dead_letter_session_produces_the_pictures_of_the_guide(
    tenant: Tenant, whole_target: Target, tmp_path: Path
) -> None:
    pictures = picture_folder(tmp_path)
    terminal = Terminal(
        {"HAREBELL_AMQP_URL": tenant.stack.amqp_url, "HAREBELL_TENANT": tenant.name}
    )
    await create_dead_letters(tenant, whole_target)

    output = await terminal.run("harebell dlq groups list")
    group_id = first_id(output, "http_503")
    output = await terminal.run(f"harebell dlq list --group {group_id} --limit 5")
    dead_letter_id = first_id(output, "http_503")
    groups_picture = terminal.picture("failure-groups", pictures)
    await terminal.run(f"harebell dlq get {dead_letter_id}")
    letter_picture = terminal.picture("dead-letter", pictures)

    await terminal.run(f'harebell dlq groups note {group_id} "their certificate, ticket 4715"')
    await terminal.run(f"harebell dlq replay --group {group_id} --dry-run")
    whole_target.fix("till")
    options = "--canary 3 --rate 50/s --abort-on-failure-ratio 0.2 --note mended --follow"
    output = await terminal.run(f"harebell dlq replay --group {group_id} {options}")
    assert "done" in output
    output = await terminal.run("harebell dlq groups list")
    assert group_id not in output
    replay_picture = terminal.picture("replay-job", pictures)

    assert f"{PROMPT}harebell dlq groups list" in picture_text(groups_picture)
    assert group_id in picture_text(groups_picture)
    assert dead_letter_id in picture_text(letter_picture)
    assert "their certificate" in picture_text(replay_picture)
    assert len(await tenant.runs("succeeded")) == INVOICES


async def create_dead_letters(tenant: Tenant, target: Target) -> None:
    def put(key: str, request_target: dict[str, Any]) -> dict[str, Any]:
        return {"key": key, "when": {"now": True}, "target": request_target, "retry": TWO_ATTEMPTS}

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


def first_id(output: str, text: str) -> str:
    """Return the first id in the first line that contains `text`."""
    line = next(line for line in output.splitlines() if text in line)
    found = UUID.search(line)
    assert found is not None, line
    return found[0]


def picture_text(picture: Path) -> str:
    """Return the text of the picture, and raise if the picture is not valid XML."""
    root = ET.parse(picture).getroot()  # noqa: S314  # the terminal wrote the picture
    return " ".join("".join(each.itertext()) for each in root.iter(f"{SVG}text")).replace(
        "\xa0", " "
    )
