"""Text from a tenant can steer neither the terminal nor the chat of another person."""

import asyncio
import json
import os
import pty
import sys
from pathlib import Path
from typing import Final
from uuid import UUID

import aio_pika
import orjson
import pytest
from tests.acceptance.amqp_client import AmqpClient
from tests.acceptance.stack import Stack, Tenant, now, time_in
from tests.acceptance.test_dead_letter_tenants import DIES, dead_run
from tests.integration.dlq_inspector.webhook_server import webhook_server
from tests.rig.command_line import MAX_TIME, harebell
from tests.rig.polling import until

from harebell.contract.amqp_names import DEAD, message_type
from harebell.dev.plan import ServiceKind

pytestmark = [
    pytest.mark.broker,
    pytest.mark.postgres,
    pytest.mark.broker_version,
    pytest.mark.requirement("P13"),
]

MENTION: Final = "<!channel> <http://evil.example|log in> & \x1b[2J"
SAFE_MENTION: Final = "&lt;!channel&gt; &lt;http://evil.example|log in&gt; &amp; \\x1b[2J"
FORGED_ROW: Final = "x\nFAKE-ROW  succeeded"
STEERING: Final = "\x9b2J\u202eexe.txt"  # a control sequence in one byte, and reversed text
LATER: Final = {"at": "2199-01-01T00:00:00Z"}
SPIKE: Final = 12  # dead letters; more than 10 cause an alert
SCHEDULE: Final = str(UUID(int=2))


@pytest.mark.long
async def test_alert_escapes_markup_and_does_not_count_imports(own_stack: Stack) -> None:
    async with webhook_server() as chat, own_stack.tenant("acme") as tenant:
        own_stack.start_one(ServiceKind.INTAKE)
        own_stack.start_one(ServiceKind.DLQ_INSPECTOR, HAREBELL_ALERT_WEBHOOK_URL=chat.url)
        at = time_in(0)
        imported = [
            dead_run(tenant, SCHEDULE, at, replay_number=number, error_code=MENTION)
            for number in range(SPIKE)
        ]

        await tenant.harebell.import_dead_letters(imported)
        await publish_dead_runs(tenant)

        post = await asyncio.wait_for(chat.posted.get(), timeout=MAX_TIME)
    data = post["event"]["data"]
    assert post["text"].startswith(f"The tenant acme has {SPIKE} new dead letters since ")
    assert f"the error {SAFE_MENTION} at task umbrella.dies." in post["text"]
    assert (data["error_code"], data["text"]) == (MENTION, post["text"])


async def publish_dead_runs(tenant: Tenant) -> None:
    """Report dead runs with the error as an executor does, with the rights of a service."""
    reported = [
        dead_run(tenant, SCHEDULE, now().replace(microsecond=0), error_code=MENTION)
        | {"number": number}
        for number in range(SPIKE)
    ]
    payloads = [each["payload"] | {"replay_number": each["number"] + SPIKE} for each in reported]
    async with AmqpClient.open(tenant.stack.amqp_url, tenant.name) as amqp:
        message = aio_pika.Message(orjson.dumps(payloads), type=message_type("run.dead"))
        exchange = await amqp.channel.get_exchange(DEAD, ensure=False)
        await exchange.publish(message, f"run.{tenant.name}")


async def test_key_can_add_no_row_to_a_table(tenant: Tenant, tmp_path: Path) -> None:
    await tenant.put(FORGED_ROW, LATER, DIES)
    await tenant.put(STEERING, LATER, DIES)

    output = await shown_on_a_terminal(tenant, tmp_path, "schedule", "list")

    lines = output.splitlines()
    assert len(lines) == 3  # the header and two schedules
    assert not any(line.startswith("FAKE-ROW") for line in lines)
    assert r"x\nFAKE-ROW  succeeded" in output
    assert r"\x9b2J\u202eexe.txt" in output


async def test_json_on_a_terminal_is_ascii_and_unchanged(tenant: Tenant, tmp_path: Path) -> None:
    await tenant.put(STEERING, LATER, DIES)

    output = await shown_on_a_terminal(tenant, tmp_path, "schedule", "list", "-o", "json")

    assert output.isascii()
    assert [each["key"] for each in json.loads(output)] == [STEERING]


async def shown_on_a_terminal(tenant: Tenant, folder: Path, *arguments: str) -> str:
    """Run a command on a terminal without an AMQP URL in its arguments and environment."""
    file = folder / "amqp-url"
    file.write_text(f"{tenant.stack.amqp_url}\n")
    ours, theirs = pty.openpty()
    try:
        variables = {name: text for name, text in os.environ.items() if "HAREBELL" not in name}
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "harebell.cli",
            *arguments,
            env=variables
            | {
                "HAREBELL_AMQP_URL_FILE": str(file),
                "HAREBELL_TENANT": tenant.name,
                "PYTHONPATH": os.pathsep.join(sys.path),
                "NO_COLOR": "1",
            },
            stdout=theirs,
            stderr=theirs,
        )
        os.close(theirs)
        output = await asyncio.wait_for(asyncio.to_thread(read_all, ours), MAX_TIME)
        assert await process.wait() == 0, output
    finally:
        os.close(ours)
    return output.replace("\r\n", "\n")


def read_all(terminal: int) -> str:
    """Return everything that the processes of the terminal write until their end."""
    parts: list[bytes] = []
    while True:
        try:
            part = os.read(terminal, 65_536)
        except OSError:  # Linux reports the end of a terminal as an error
            part = b""
        if not part:
            return b"".join(parts).decode()
        parts.append(part)


async def test_apply_reads_no_aliases_and_no_file_outside_its_folder(
    tenant: Tenant, tmp_path: Path
) -> None:
    folder, outside = tmp_path / "schedules", tmp_path / "outside.yaml"
    folder.mkdir()
    outside.write_text(f"key: outside\nwhen: {json.dumps(LATER)}\ntarget: {json.dumps(DIES)}\n")
    (folder / "own.yaml").write_text(outside.read_text().replace("outside", "own"))
    levels = [f"l{n}: &l{n} [{', '.join([f'*l{n - 1}'] * 9)}]" for n in range(1, 10)]
    bomb = "\n".join(["l0: &l0 [lol]", *levels])

    (folder / "link.yaml").symlink_to(outside)
    linked = await apply(tenant, folder)
    (folder / "link.yaml").unlink()
    (folder / "bomb.yaml").write_text(bomb)
    expanded = await apply(tenant, folder)
    (folder / "bomb.yaml").unlink()
    applied = await apply(tenant, folder)

    assert ("outside_folder" in linked[1], linked[0]) == (True, 2)
    assert ("must not contain aliases" in expanded[1], expanded[0]) == (True, 2)
    assert applied[0] == 0
    keys = await until(lambda: keys_of(tenant), what="the schedule")
    assert keys == ["own"]


async def apply(tenant: Tenant, folder: Path) -> tuple[int, str]:
    """Return the exit code and the messages of `harebell apply`."""
    done = await harebell(
        "apply",
        "-f",
        str(folder),
        "--owner",
        "acme-team",
        HAREBELL_AMQP_URL=tenant.stack.amqp_url,
        HAREBELL_TENANT=tenant.name,
    )
    return done.code, done.messages


async def keys_of(tenant: Tenant) -> list[str]:
    return [str(each.key) async for each in tenant.harebell.schedules()]
