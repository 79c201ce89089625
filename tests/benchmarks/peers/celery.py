"""Celery on the private RabbitMQ, with a separate virtual host and a separate environment."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tests.benchmarks.peers.peer import Peer, Programs, install_programs
from tests.benchmarks.rig import Rig

REQUIREMENT: Final = "celery>=5.7,<5.8"
WORKERS: Final = os.cpu_count() or 1  # processes
# Threads, because a child process costs more than a short task. Only monitoring needs the messages
# between workers.
OPTIONS: Final = (
    "--pool",
    "threads",
    "--concurrency",
    "2",
    "--without-gossip",
    "--without-mingle",
    "--without-heartbeat",
)


@contextmanager
def open_peer(folder: Path, rig: Rig) -> Iterator[Peer]:
    servers = rig.stack.servers
    python = str(folder / "venv/bin/python")
    pip = (python, "-m", "pip", "-qq", "--disable-pip-version-check", "install", REQUIREMENT)
    install_programs("celery", folder, (sys.executable, "-m", "venv", "venv"), pip)
    worker = (python, "-m", "celery", "--app", "bench", "worker", *OPTIONS)
    programs = Programs(sender=(python, "bench.py"), worker=worker, workers=WORKERS)
    rabbitmq = servers.management("GET", "overview")["rabbitmq_version"]
    with (
        servers.virtual_host("celery") as url,
        Peer.open("celery", folder, programs, store=(url, rig.pids()["broker"])) as peer,
    ):
        peer.versions["rabbitmq"] = rabbitmq
        yield peer
