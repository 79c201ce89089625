"""A client without Harebell code: the JSON and the command of the README, with amqp-tools."""

import asyncio
import json
import os
import re
import shutil
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from tests.acceptance.recording_target import Target
from tests.acceptance.stack import Tenant
from tests.rig.polling import WAIT_TIMEOUT

README = Path(__file__).parents[2] / "README.md"
EXAMPLE = re.compile(
    r"<!-- acceptance: plain-amqp -->\n```json\n(?P<body>.+?)\n```\n+```sh\n(?P<command>.+?)\n```",
    re.DOTALL,
)
# The parts of the example that a reader replaces.
README_URL = "https://acme.example/hook"
README_KEY = "default.schedule.put"

pytestmark = [
    pytest.mark.broker_version,
    pytest.mark.broker,
    pytest.mark.postgres,
    pytest.mark.skipif(
        shutil.which("amqp-publish") is None, reason="The Debian package amqp-tools is missing."
    ),
]


def example() -> tuple[str, str]:
    """Return the JSON of the README and the command that publishes the JSON."""
    found = EXAMPLE.search(README.read_text())
    assert found is not None, (
        "The README contains no example with the marker `acceptance: plain-amqp`."
    )
    return found["body"], found["command"]


async def shell(command: str, amqp_url: str) -> str:
    process = await asyncio.create_subprocess_shell(
        command,
        env=dict(os.environ) | {"HAREBELL_AMQP_URL": amqp_url},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(WAIT_TIMEOUT):
        out, err = await process.communicate()
    assert process.returncode == 0, err.decode()
    return out.decode()


@pytest.mark.requirement("S19")
async def test_schedule_published_by_amqp_tools_calls_its_target_and_is_in_the_ledger(
    tenant: Tenant, target: Target
) -> None:
    url = tenant.stack.amqp_url
    body, command = example()
    command_of_test = command.replace(README_URL, target.url("hello")).replace(
        README_KEY, f"{tenant.name}.schedule.put"
    )
    mine = f"{tenant.name}.mine"
    await shell(f'amqp-declare-queue --url "$HAREBELL_AMQP_URL" --queue {mine}', url)

    await shell(f"{command_of_test} --reply-to {mine}", url)
    response: dict[str, Any] = json.loads(
        await shell(f'amqp-consume --url "$HAREBELL_AMQP_URL" --queue {mine} --count 1 cat', url)
    )
    (run,) = await tenant.until_runs(1, "succeeded")

    assert body in command
    assert (response["ok"], response["status"], response["key"]) == (True, "created", "hello-1")
    (call,) = target.calls("hello")
    assert [*map(datetime.fromisoformat, response["next_at"])] == [call.scheduled_for]
    assert (str(run["schedule_id"]), run["scheduled_for"]) == (response["id"], call.scheduled_for)
    assert call.late >= 0
    (attempt,) = await tenant.attempts(call.run_id)
    assert (attempt["outcome"], attempt["http_status"]) == ("succeeded", 200)
    shown = await tenant.harebell.run(call.run_id)
    assert (shown.key, shown.state, shown.attempt) == ("hello-1", "succeeded", 1)
