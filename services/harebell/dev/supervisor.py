"""The background process that keeps the planned services running, as a service manager would.

`python -m harebell.dev.supervisor --root DIR`: reads the plan written there; SIGTERM stops all.
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

LOOK_S = 0.2
BREATH_S = 1.0  # between two starts of one service, so that a crash loop leaves the machine usable

log = structlog.get_logger()


def supervise(plan: StackPlan, crew: ServiceProcesses, stopping: Event) -> None:
    """Start everything; start again what died, if so planned; stop everything when told."""
    started: dict[str, float] = {}
    while True:
        for service in plan.services:
            last = started.get(service.name)
            if last is None or _due(plan, crew, service.name, since=monotonic() - last):
                process = crew.start(service)
                started[service.name] = monotonic()
                phrase = "service started" if last is None else "service started again"
                log.info(phrase, service=service.name, pid=process.pid)
        if stopping.wait(LOOK_S):
            break
    log.info("services stopped", services=crew.stop())


def _due(plan: StackPlan, crew: ServiceProcesses, name: str, *, since: float) -> bool:
    return plan.restart and since >= BREATH_S and crew.process(name) is None


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
        parser.error(f"nothing is planned in {root}")
    supervise(plan, ServiceProcesses(root), stopping)


if __name__ == "__main__":
    main()
