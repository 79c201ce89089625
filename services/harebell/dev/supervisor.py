"""The supervisor: a background process that restarts the planned services.

`python -m harebell.dev.supervisor --root DIR` reads the plan in DIR. SIGTERM stops all services.
"""

import argparse
import signal
from pathlib import Path
from threading import Event
from time import monotonic

import structlog

from harebell.dev.plan import StackPlan
from harebell.dev.processes import ServiceProcesses
from harebell.dev.state import load_plan

POLL_INTERVAL = 0.2  # seconds
RESTART_DELAY = (
    1.0  # seconds between two starts of one service, which bounds the cost of a crash loop
)

log = structlog.get_logger()


def supervise(plan: StackPlan, processes: ServiceProcesses, stopping: Event) -> None:
    """Start all services, restart ended services, and stop all when `stopping` is set."""
    started: dict[str, float] = {}
    while True:
        for service in plan.services:
            last = started.get(service.name)
            if last is None or _needs_restart(
                plan, processes, service.name, since=monotonic() - last
            ):
                process = processes.start(service)
                started[service.name] = monotonic()
                phrase = "service started" if last is None else "service restarted"
                log.info(phrase, service=service.name, pid=process.pid)
        if stopping.wait(POLL_INTERVAL):
            break
    log.info("services stopped", services=processes.stop())


def _needs_restart(
    plan: StackPlan, processes: ServiceProcesses, name: str, *, since: float
) -> bool:
    return plan.restart and since >= RESTART_DELAY and processes.process(name) is None


def main() -> None:
    parser = argparse.ArgumentParser(prog="harebell.dev.supervisor")
    parser.add_argument("--root", type=Path, required=True)
    root: Path = parser.parse_args().root
    structlog.configure(
        processors=[
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.JSONRenderer(),
        ]
    )
    stopping = Event()
    signal.signal(signal.SIGTERM, lambda *_: stopping.set())
    plan = load_plan(root)
    if plan is None:
        parser.error(f"The folder {root} must contain the plan of a stack.")
    supervise(plan, ServiceProcesses(root), stopping)


if __name__ == "__main__":
    main()
