"""The stack starts, restarts, reports and stops its processes, which are replacements."""

import os
import signal
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic, sleep

import pytest

from harebell.dev.errors import NotReady
from harebell.dev.plan import STOP_TIMEOUT, ServiceCounts, ServiceKind
from harebell.dev.spawn import Process, identify, tree
from harebell.dev.stack import Stack
from harebell.dev.status import StackHealth, StackStatus

STAND_IN = Path(__file__).with_name("stand_in.py")
RESTART_S = 2.0
SERVERS = {
    "HAREBELL_AMQP_URL": "amqp://nobody:x@127.0.0.1:1",
    "HAREBELL_DATABASE_URL": "postgresql://nobody:x@127.0.0.1:1/nothing",
}


def stand_in(_: ServiceKind) -> tuple[str, ...]:
    return (sys.executable, str(STAND_IN))


@dataclass(kw_only=True)
class Local:
    """A stack of replacement services, with its messages and prepared databases."""

    root: Path
    command: Callable[[ServiceKind], tuple[str, ...]] = stand_in
    messages: list[str] = field(default_factory=list)
    prepared: list[str] = field(default_factory=list)
    environment: dict[str, str] = field(default_factory=dict)

    @property
    def stack(self) -> Stack:
        """Return a new stack object, because each command is a new process."""
        return Stack(
            self.root,
            print_message=self.messages.append,
            environ=dict(os.environ) | SERVERS | self.environment,
            command=self.command,
            prepare=self.prepared.append,
        )


@pytest.fixture
def local(tmp_path: Path) -> Iterator[Local]:
    local = Local(root=tmp_path)
    yield local
    local.stack.stop()


def processes_of(report: StackStatus) -> list[Process]:
    """Return all processes of the stack with their descendants."""
    pids = [each.pid for each in report.processes] + [each.pid for each in report.servers]
    running = [process for pid in pids if pid and (process := identify(pid))]
    return [member for process in running for member in tree(process)]


def pid_of(report: StackStatus | None, name: str) -> int | None:
    assert report is not None
    return next(each.pid for each in report.processes if each.name == name)


def until(happened: Callable[[], bool], *, limit: float) -> bool:
    deadline = monotonic() + limit
    while not (done := happened()) and monotonic() < deadline:
        sleep(0.05)
    return done


@pytest.mark.requirement("S74")
def test_start_runs_the_requested_counts_until_ready(local: Local) -> None:
    report = local.stack.start(ServiceCounts(tickers=2, executors=3))

    assert [process.name for process in report.processes] == [
        "intake-1",
        "ticker-1",
        "ticker-2",
        "dispatcher-1",
        "executor-1",
        "executor-2",
        "executor-3",
        "dlq_inspector-1",
    ]
    assert all(process.ready for process in report.processes)
    assert report.health is StackHealth.RUNNING
    assert local.prepared == [SERVERS["HAREBELL_DATABASE_URL"]]


def test_second_start_reports_it_and_changes_nothing(local: Local) -> None:
    first = local.stack.start()

    second = local.stack.start(ServiceCounts(executors=2))

    assert second == first
    assert any(
        message.startswith("These services run already: intake-1") for message in local.messages
    )


def test_ended_service_restarts_within_two_seconds(local: Local) -> None:
    before = pid_of(local.stack.start(), "ticker-1")
    assert before is not None

    os.kill(before, signal.SIGKILL)

    def again() -> bool:
        return pid_of(local.stack.status(), "ticker-1") not in (before, None)

    assert until(again, limit=RESTART_S)


def test_ended_service_stays_ended_without_restart(local: Local) -> None:
    before = pid_of(local.stack.start(restart=False), "ticker-1")
    assert before is not None

    os.kill(before, signal.SIGKILL)

    assert until(lambda: pid_of(local.stack.status(), "ticker-1") is None, limit=RESTART_S)
    assert not until(lambda: pid_of(local.stack.status(), "ticker-1") is not None, limit=RESTART_S)
    report = local.stack.status()
    assert report is not None
    assert report.health is StackHealth.PARTLY


@pytest.mark.requirement("S74")
def test_stop_ends_every_process(local: Local) -> None:
    running = processes_of(local.stack.start())

    stopped = local.stack.stop()

    assert stopped
    assert len(running) > 5
    assert [process for process in running if process.is_running] == []
    assert local.stack.stop() is False


@pytest.mark.long
def test_stop_waits_for_the_shutdown_timeout_of_the_executors(local: Local) -> None:
    drain = STOP_TIMEOUT + 2  # longer than the wait for a service without attempts
    local.environment = {
        "PYTHON_DRAIN": str(drain),
        "HAREBELL_SHUTDOWN_TIMEOUT": f"{drain}s",
    }
    local.stack.start(ServiceCounts(executors=2))
    local.environment = {}  # the command that stops the stack may have another environment

    local.stack.stop()

    for name in ("executor-1", "executor-2"):
        assert (local.root / "logs" / f"{name}.log").read_text().endswith("drained\n")


@pytest.mark.long
def test_stop_kills_an_executor_after_its_shutdown_timeout(local: Local) -> None:
    local.environment = {"PYTHON_DRAIN": "300", "HAREBELL_SHUTDOWN_TIMEOUT": "1s"}
    running = processes_of(local.stack.start())

    local.stack.stop()

    assert [process for process in running if process.is_running] == []
    assert "drained" not in (local.root / "logs" / "executor-1.log").read_text()


def test_start_stops_services_of_a_crashed_stack(local: Local) -> None:
    report = local.stack.start()
    old = processes_of(report)
    supervisor = next(each.pid for each in report.servers if each.name == "supervisor")
    assert supervisor is not None
    os.kill(supervisor, signal.SIGKILL)
    assert until(lambda: identify(supervisor) is None, limit=RESTART_S)

    again = local.stack.start()

    assert again.health is StackHealth.RUNNING
    assert [process for process in old if process.is_running] == []
    assert any("earlier stack" in message and "ticker-1" in message for message in local.messages)


def test_failed_service_is_named_with_the_end_of_its_log(local: Local) -> None:
    def broken(kind: ServiceKind) -> tuple[str, ...]:
        message = "print('no such setting: HAREBELL_WRONG'); raise SystemExit(2)"
        return (sys.executable, "-c", message) if kind is ServiceKind.TICKER else stand_in(kind)

    local.command = broken

    with pytest.raises(NotReady, match="no such setting: HAREBELL_WRONG") as caught:
        local.stack.start(restart=False)

    assert "ticker-1" in caught.value.names


def test_wipe_deletes_only_files_of_the_stack(local: Local) -> None:
    local.stack.start()
    (local.root / "mine.txt").write_text("not the stack's")

    local.stack.stop(wipe=True)

    assert [path.name for path in local.root.iterdir()] == ["mine.txt"]
    assert local.stack.status() is None
