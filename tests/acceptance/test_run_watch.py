"""`harebell run watch` on a running stack: the progress of a run, its end and the exit code."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import orjson
import pytest
from tests.acceptance.stack import Tenant
from tests.acceptance.worker_queue import open_queue
from tests.rig.polling import WAIT_TIMEOUT, until

pytestmark = [pytest.mark.broker, pytest.mark.postgres, pytest.mark.long]

DONE: Final = 0
FAILED: Final = 1
RETRY: Final = {"max_attempts": 2, "backoff": {"base": "100ms", "jitter": "none"}}


@dataclass(frozen=True, slots=True)
class Watch:
    """A command `harebell run watch`. `stderr` contains what it has shown until now."""

    process: asyncio.subprocess.Process
    stderr: Path

    async def until_shown(self, *texts: str) -> None:
        async def are_shown() -> bool:
            shown = self.stderr.read_text(errors="replace")
            return all(text in shown for text in texts)

        await until(are_shown, what=f"{texts} on stderr")

    async def end(self) -> tuple[int | None, Mapping[str, Any]]:
        """Return the exit code and the record on stdout."""
        async with asyncio.timeout(WAIT_TIMEOUT):
            out, _ = await self.process.communicate()
        record: Mapping[str, Any] = orjson.loads(out)
        return self.process.returncode, record


@asynccontextmanager
async def watch(
    tenant: Tenant, run_id: str, folder: Path, *, terminal: bool = False
) -> AsyncIterator[Watch]:
    """Run the command. Its stderr is a file or, on request, a terminal that a task copies."""
    path = folder / ("terminal" if terminal else "lines")
    path.touch()
    reading, writing = os.openpty() if terminal else (None, os.open(path, os.O_WRONLY))
    command = ["harebell.cli", "run", "watch", run_id, "--every", "0.1", "-o", "json"]
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        *command,
        env={
            **os.environ,
            "HAREBELL_AMQP_URL": tenant.stack.amqp_url,
            "HAREBELL_TENANT": tenant.name,
            "TERM": "xterm",
        },
        stdout=asyncio.subprocess.PIPE,
        stderr=writing,
    )
    os.close(writing)
    copying = asyncio.create_task(asyncio.to_thread(_copy, reading, path))
    try:
        yield Watch(process, path)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
        await copying


def _copy(terminal: int | None, path: Path) -> None:
    """Append the output of a terminal to the file until the last writer has ended."""
    if terminal is None:
        return
    with path.open("ab", buffering=0) as file:
        try:
            while chunk := os.read(terminal, 4096):
                file.write(chunk)
        except OSError:  # Linux reports the end of a terminal as an error
            pass
        finally:
            os.close(terminal)


@pytest.mark.requirement("S71")
async def test_watch_shows_progress_marks_a_stale_one_and_ends_with_the_run(
    tenant: Tenant, tmp_path: Path
) -> None:
    harebell = tenant.harebell
    async with open_queue(tenant) as queue:
        await tenant.put("report", {"now": True}, queue.target(heartbeat="60s"), retry=RETRY)
        run_id, token, _ = await queue.next_call()
        async with (
            watch(tenant, run_id, tmp_path) as lines,
            watch(tenant, run_id, tmp_path, terminal=True) as terminal,
        ):
            await lines.until_shown("running, attempt 1\n")
            await harebell.heartbeat(run_id, token, percent=42, message="3 of 7")
            await lines.until_shown("running, attempt 1: 42 %: 3 of 7\n")
            await terminal.until_shown("42 %: 3 of 7", "\u2501")  # the bar
            await harebell.fail_run(run_id, token, code="disk_full")
            _, second_token, _ = await queue.next_call()
            await lines.until_shown("running, attempt 2: 42 %: 3 of 7 (stale, reported ")
            await harebell.complete_run(run_id, second_token)
            ends = [await lines.end(), await terminal.end()]

    assert [code for code, _ in ends] == [DONE, DONE]
    assert [(record["state"], record["attempt"]) for _, record in ends] == [("succeeded", 2)] * 2
    assert "\u2501" not in lines.stderr.read_text()


@pytest.mark.requirement("S71")
async def test_watch_of_a_dead_run_has_the_exit_code_1(tenant: Tenant, tmp_path: Path) -> None:
    async with open_queue(tenant) as queue:
        await tenant.put("report", {"now": True}, queue.target(heartbeat="60s"))
        run_id, token, _ = await queue.next_call()
        async with watch(tenant, run_id, tmp_path) as lines:
            await lines.until_shown("running, attempt 1\n")
            await tenant.harebell.fail_run(run_id, token, code="bad_input", retryable=False)
            code, record = await lines.end()

    assert (code, record["state"], record["reason"]) == (FAILED, "dead", "bad_input")
