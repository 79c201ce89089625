"""A pid file identifies a process by its pid and its start."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from harebell.dev.errors import StartFailed
from harebell.dev.pid_file import BackgroundProcess
from harebell.dev.spawn import Process, identify, tree

SLEEP = [sys.executable, "-c", "import time; time.sleep(60)"]
STUBBORN = ["/bin/sh", "-c", "trap '' TERM; echo deaf; while true; do sleep 0.1; done"]
PARENT = ["/bin/sh", "-c", "sleep 60 & wait"]


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[BackgroundProcess]:
    daemon = BackgroundProcess("one", tmp_path)
    yield daemon
    daemon.kill()


def start(daemon: BackgroundProcess, command: list[str]) -> Process:
    return daemon.start(command, environment=os.environ, directory=Path("/"))


def test_pid_file_identifies_the_process_for_another_object(
    daemon: BackgroundProcess, tmp_path: Path
) -> None:
    process = start(daemon, SLEEP)

    assert BackgroundProcess("one", tmp_path).process == process


def test_other_process_with_the_same_pid_is_ignored(
    daemon: BackgroundProcess, tmp_path: Path
) -> None:
    file = tmp_path / "run" / "servers" / "one.json"
    file.parent.mkdir(parents=True)
    file.write_text(f'{{"pid": {os.getpid()}, "born": "another boot/1"}}')

    assert daemon.process is None
    daemon.kill()
    assert identify(os.getpid()) is not None


def test_stop_kills_a_process_after_the_grace_time(daemon: BackgroundProcess) -> None:
    process = start(daemon, STUBBORN)
    daemon.await_ready(lambda: daemon.log.read_text() != "", limit=10)

    daemon.stop(grace=0.2)

    assert not process.is_running


def test_kill_ends_the_descendants(daemon: BackgroundProcess) -> None:
    process = start(daemon, PARENT)
    daemon.await_ready(lambda: len(tree(process)) > 1, limit=10)
    family = tree(process)

    daemon.stop(grace=5)

    assert [each for each in family if each.is_running] == []


def test_failed_start_contains_the_end_of_the_log(daemon: BackgroundProcess) -> None:
    start(daemon, ["/bin/sh", "-c", "echo no room; exit 1"])

    with pytest.raises(StartFailed, match="no room"):
        daemon.await_ready(lambda: False, limit=10)
