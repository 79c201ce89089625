"""The reports of a service to systemd, through a real socket."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from harebell.bootstrap.supervisor import ALIVE, READY, Supervisor

MAX_WAIT = 30.0  # seconds; the process imports the service first
SERVICE = """
import asyncio, os, sys
from harebell.bootstrap.process import run_service
from harebell.bootstrap.supervisor import READY, SUPERVISOR
from harebell.runtime.settings import IntakeSettings

async def serve(settings, stop):
    SUPERVISOR.get().report(READY)
    await stop.wait()

run_service(IntakeSettings, "intake", serve, environ=os.environ)
"""
URLS = {
    "HAREBELL_AMQP_URL": "amqp://broker.example",
    "HAREBELL_DATABASE_URL": "postgresql://database.example/harebell",
}


@pytest.fixture
def receiver(tmp_path: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as opened:
        opened.bind(str(tmp_path / "notify"))
        opened.settimeout(MAX_WAIT)
        yield opened


def test_service_reports_its_start_its_life_and_its_stop(receiver: socket.socket) -> None:
    environ = {
        "PYTHONPATH": os.pathsep.join(sys.path),
        "NOTIFY_SOCKET": receiver.getsockname(),
        "WATCHDOG_USEC": "300000",
        **URLS,
    }
    with subprocess.Popen([sys.executable, "-c", SERVICE], env=environ) as process:  # noqa: S603  # the command is a constant
        try:
            reports = [receiver.recv(100) for _ in range(4)]
            process.send_signal(signal.SIGTERM)
            while reports[-1] != b"STOPPING=1":
                reports.append(receiver.recv(100))
            process.wait(MAX_WAIT)
        finally:
            process.kill()

    assert process.returncode == 0
    assert sorted(reports[:2]) == [b"READY=1", b"WATCHDOG=1"]
    assert set(reports[2:-1]) == {b"WATCHDOG=1"}


def test_report_reaches_an_abstract_socket() -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiver:
        receiver.bind(f"\0harebell-{os.getpid()}")
        receiver.settimeout(MAX_WAIT)

        Supervisor.of({"NOTIFY_SOCKET": f"@harebell-{os.getpid()}"}).report(READY)

        assert receiver.recv(100) == b"READY=1"


async def test_no_report_is_sent_without_a_supervisor() -> None:
    supervisor = Supervisor.of({"WATCHDOG_USEC": "1000"})

    supervisor.report(READY)
    await asyncio.wait_for(supervisor.report_alive(), MAX_WAIT)


def test_report_to_a_supervisor_that_has_ended_changes_nothing(tmp_path: Path) -> None:
    Supervisor.of({"NOTIFY_SOCKET": str(tmp_path / "gone")}).report(READY)


@pytest.mark.parametrize(
    "environ",
    [
        {},
        {"WATCHDOG_USEC": "0"},
        {"WATCHDOG_USEC": "often"},
        {"WATCHDOG_USEC": "1000", "WATCHDOG_PID": "1"},
    ],
)
async def test_watchdog_is_off_when_the_supervisor_does_not_expect_reports(
    receiver: socket.socket, environ: dict[str, str]
) -> None:
    supervisor = Supervisor.of({"NOTIFY_SOCKET": receiver.getsockname(), **environ})

    await asyncio.wait_for(supervisor.report_alive(), MAX_WAIT)


async def test_reports_are_more_frequent_than_the_supervisor_requires(
    receiver: socket.socket,
) -> None:
    environ = {
        "NOTIFY_SOCKET": receiver.getsockname(),
        "WATCHDOG_USEC": "600000",
        "WATCHDOG_PID": str(os.getpid()),
    }
    loop = asyncio.get_running_loop()
    began = loop.time()

    reporting = asyncio.create_task(Supervisor.of(environ).report_alive())
    reports = [await asyncio.to_thread(receiver.recv, 100) for _ in range(4)]
    reporting.cancel()

    assert reports == [ALIVE.encode()] * 4
    assert loop.time() - began > 3 * 0.6 / 4  # it does not report without a pause
