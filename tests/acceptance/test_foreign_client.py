"""A service that knows nothing of ours but AMQP and the JSON in the README."""

import asyncio
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from tests.acceptance.record import Target
from tests.acceptance.stack import PATIENCE, Tenant

# Debian's amqp-tools; `make test` installs them.
TOOL = "amqp-publish"
HELLO = Path(__file__).with_name("hello.json")
HOOK = "http://127.0.0.1:8080/hello"
README = Path(__file__).parents[2] / "README.md"

pytestmark = [
    pytest.mark.broker,
    pytest.mark.postgres,
    pytest.mark.skipif(shutil.which(TOOL) is None, reason=f"{TOOL} is not installed"),
]


async def tool(name: str, *arguments: str) -> str:
    process = await asyncio.create_subprocess_exec(
        name, *arguments, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    async with asyncio.timeout(PATIENCE):
        out, err = await process.communicate()
    assert process.returncode == 0, err.decode()
    return out.decode()


async def test_a_schedule_published_by_amqp_tools_calls_its_target_and_is_in_the_ledger(
    tenant: Tenant, target: Target
) -> None:
    url = tenant.stack.amqp_url
    await tool("amqp-declare-queue", "-u", url, "-q", "mine")
    body = HELLO.read_text().replace(HOOK, target.url("hello"))

    where = ("-e", "harebell.commands", "-r", f"{tenant.name}.schedule.put", "-t", "mine")
    await tool(TOOL, "-u", url, *where, "-b", body)
    answer: dict[str, Any] = json.loads(
        await tool("amqp-consume", "-u", url, "-q", "mine", "-c", "1", "cat")
    )
    (run,) = await tenant.until_runs(1, "succeeded")

    assert (answer["ok"], answer["status"], answer["key"]) == (True, "created", "hello-1")
    (call,) = target.calls("hello")
    assert answer["next_at"] == [call.scheduled_for.isoformat(timespec="milliseconds")[:-6] + "Z"]
    assert (str(run["schedule_id"]), run["scheduled_for"]) == (answer["id"], call.scheduled_for)
    assert call.late >= 0
    (attempt,) = await tenant.attempts(call.run_id)
    assert (attempt["outcome"], attempt["http_status"]) == ("succeeded", 200)
    shown = await tenant.harebell.run(call.run_id)
    assert (shown["key"], shown["state"], shown["attempt"]) == ("hello-1", "succeeded", 1)
