"""`harebell top` on a real stack: one reading, JSON, and the live screen in a terminal."""

import asyncio
import json
import os
import pty
import signal
import sys
from typing import Any, Final

import pytest
from tests.acceptance.recording_target import Target
from tests.acceptance.stack import Tenant
from tests.rig.command_line import MAX_TIME, caller_environment, end, harebell
from tests.rig.polling import until

pytestmark = [pytest.mark.broker, pytest.mark.postgres, pytest.mark.long]

READ_SIZE: Final = 65_536
LEAVE_SCREEN: Final = b"\x1b[?1049l"  # restores what the terminal showed before
TITLE: Final = b"harebell top"


def environment(tenant: Tenant) -> dict[str, str]:
    return {
        "HAREBELL_AMQP_URL": tenant.stack.amqp_url,
        "HAREBELL_TENANT": tenant.name,
        "HAREBELL_TIMEOUT": "30",
        "TERM": "xterm-256color",
    }


async def top(tenant: Tenant, *arguments: str) -> str:
    """Return the output of one reading."""
    done = await harebell("top", *arguments, **environment(tenant))
    assert done.code == 0, done.messages
    return done.output


async def load(tenant: Tenant, target: Target) -> None:
    """Let runs start, wait without an executor, and die."""
    await tenant.put("often", {"every": "1s"}, target.http("ok"))
    await tenant.put("lonely", {"now": True}, target.http("never"), pool="nobody")
    retry = {"max_attempts": 1}
    await tenant.put("dying", {"now": True}, target.http("bad", fail=1), retry=retry)


async def test_top_shows_starts_backlog_and_dead_letters(tenant: Tenant, target: Target) -> None:
    await load(tenant, target)

    async def complete() -> dict[str, Any] | None:
        found: dict[str, Any] = json.loads(await top(tenant, "--json"))
        lanes = {each["pool"]: each for each in found["lanes"]}
        has_all = {"default", "nobody"} <= lanes.keys() and lanes["default"]["started"] >= 2
        return found if has_all and found["dead_letters"]["open"] else None

    found = await until(complete, within=MAX_TIME, what="runs, a backlog and a dead letter")
    plain = await top(tenant)

    assert found is not None
    lanes = {each["pool"]: each for each in found["lanes"]}
    assert lanes["default"]["late_p50_ms"] is not None
    assert (lanes["nobody"]["waiting"], lanes["nobody"]["started"]) == (1, 0)
    assert lanes["nobody"]["oldest_s"] > 0
    assert found["dead_letters"]["open"] == 1
    assert found["breakers"] == []
    lines = [line.split() for line in plain.splitlines()]
    assert ["default", "normal"] in [line[:2] for line in lines]
    assert ["nobody", "normal"] in [line[:2] for line in lines]
    assert "\x1b" not in plain


async def test_top_refreshes_the_screen_of_a_terminal_until_ctrl_c(
    tenant: Tenant, target: Target
) -> None:
    await load(tenant, target)
    terminal, child = pty.openpty()
    # A shell ignores SIGINT for background jobs, and the command would inherit it.
    process = await asyncio.create_subprocess_exec(
        "env",
        "--default-signal=INT",
        sys.executable,
        "-m",
        "harebell.cli",
        "top",
        "--interval",
        "1",
        env=caller_environment() | environment(tenant) | {"COLUMNS": "110", "LINES": "30"},
        stdin=child,
        stdout=child,
        stderr=child,
    )
    os.close(child)
    os.set_blocking(terminal, False)
    shown = bytearray()

    async def drawn_three_times() -> bool:
        read_into(shown, terminal)
        return shown.count(TITLE) >= 3

    async def left() -> bool:
        read_into(shown, terminal)
        return LEAVE_SCREEN in shown

    try:
        await until(drawn_three_times, within=MAX_TIME, what="three readings")
        process.send_signal(signal.SIGINT)
        await until(left, within=MAX_TIME, what="the end of the screen")
        await asyncio.wait_for(process.wait(), MAX_TIME)
    finally:
        await end(process)
        os.close(terminal)

    assert b"Lanes" in shown
    assert b"Traceback" not in shown


def read_into(shown: bytearray, terminal: int) -> None:
    """Append what the terminal shows. The end of its process ends the terminal too."""
    try:
        shown += os.read(terminal, READ_SIZE)
    except (BlockingIOError, OSError):
        return
