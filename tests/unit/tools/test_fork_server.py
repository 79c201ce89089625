"""A service that starts as a copy: it has its own session, environment and log."""

import os
import signal
import sys
import time
from pathlib import Path

from tests.rig.fork_server import start_copy

from harebell.dev.plan import ServiceKind, module_command
from harebell.dev.spawn import Process

ENVIRONMENT = {
    "PYTHONPATH": os.pathsep.join(sys.path),
    "HAREBELL_AMQP_URL": "amqp://broker.example",
    "HAREBELL_DATABASE_URL": "postgresql://database.example",
    "HAREBELL_HORIZON": "soon",
}
TIMEOUT = 30.0  # seconds


def start(tmp_path: Path, **environment: str) -> Process:
    return start_copy(
        module_command(ServiceKind.TICKER),
        log=tmp_path / "ticker.log",
        environment=ENVIRONMENT | environment,
        directory=tmp_path,
    )


def log_after_its_end(process: Process, tmp_path: Path) -> str:
    deadline = time.monotonic() + TIMEOUT
    while process.is_running:
        assert time.monotonic() < deadline, "The service runs with invalid settings."
        time.sleep(0.01)
    return (tmp_path / "ticker.log").read_text()


def test_copy_reads_its_own_environment_and_writes_its_own_log(tmp_path: Path) -> None:
    first = start(tmp_path)
    assert "HAREBELL_HORIZON" in log_after_its_end(first, tmp_path)

    second = start(tmp_path, HAREBELL_HORIZON="1m", HAREBELL_SHARD="third")
    log = log_after_its_end(second, tmp_path)
    assert "HAREBELL_SHARD" in log
    assert second.pid != first.pid


def test_environment_of_the_interpreter_needs_a_new_process(tmp_path: Path) -> None:
    valid = {"HAREBELL_HORIZON": "1m"}
    copy, new = start(tmp_path, **valid), start(tmp_path, LD_PRELOAD="", **valid)

    assert parent(new) == os.getpid() != parent(copy)
    for each in (copy, new):
        each.send(signal.SIGKILL)
        log_after_its_end(each, tmp_path)


def parent(process: Process) -> int:
    """Return the pid of the parent, from the field after the state (proc(5))."""
    after_name = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2]
    return int(after_name.split()[1])
