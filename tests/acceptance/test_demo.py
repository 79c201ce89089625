"""The demonstration of `make demo` without a terminal, from the start to its verdict."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from harebell.dev.stack import Stack

DEMO_TIMEOUT = 180.0  # seconds, with the start of the stack; about 30 s on an idle machine
VERDICT = re.compile(
    r"expected (\d+), ran (\d+), cancelled (\d+), missing (\d+), duplicated (\d+), early (\d+), "
    r"lateness p50/p99 [\d.]+/[\d.]+ ms: passed"
)


HAS_GIVEN_SERVERS = "HAREBELL_AMQP_URL" in os.environ and "HAREBELL_DATABASE_URL" in os.environ
pytestmark = pytest.mark.skipif(
    HAS_GIVEN_SERVERS,
    reason="The demonstration would share queues with other services on a given broker.",
)


@pytest.fixture
def root(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path
    Stack(tmp_path).stop()


@pytest.mark.long
def test_demo_ends_with_a_good_verdict_and_leaves_only_the_stack(root: Path) -> None:
    variables = {
        name: value for name, value in os.environ.items() if not name.startswith("HAREBELL_")
    }

    done = subprocess.run(  # noqa: S603  # the command is ours
        [sys.executable, "-m", "harebell.dev.demo", "--root", str(root)],
        env=variables,
        capture_output=True,
        text=True,
        timeout=DEMO_TIMEOUT,
        check=False,
    )

    assert done.returncode == 0, done.stdout + done.stderr
    verdict = VERDICT.search(done.stdout)
    assert verdict is not None, done.stdout
    expected, ran, cancelled, *wrong = map(int, verdict.groups())
    assert (expected, ran + cancelled, cancelled, wrong) == (18, expected, 1, [0, 0, 0])
    assert good_calls(root) == ran
    assert "dlq replay" in done.stdout
    assert command_lines(done.stdout) == 12
    report = Stack(root).status()
    assert report is not None
    assert all(process.ready for process in report.processes)
    assert not is_target_running(root)


def good_calls(root: Path) -> int:
    [calls] = root.glob("logs/demo-*/calls.jsonl")
    lines = calls.read_text(encoding="utf-8").splitlines()
    return len({call["run_id"] for call in map(json.loads, lines) if call["status"] == 200})


def command_lines(output: str) -> int:
    return sum(line.startswith("$ amqp-publish ") for line in output.splitlines())


def is_target_running(root: Path) -> bool:
    commands = (Path(entry) / "cmdline" for entry in Path("/proc").glob("[0-9]*"))
    return any(str(root / "logs" / "demo-") in _text(command) for command in commands)


def _text(command: Path) -> str:
    try:
        return command.read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return ""
