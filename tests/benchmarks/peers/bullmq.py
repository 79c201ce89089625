"""BullMQ on a Redis of its own."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tests.benchmarks.peers.peer import Peer, Programs, installed
from tests.benchmarks.rig import Rig

from harebell.dev.pid_file import BackgroundProcess
from harebell.dev.ports import LOOPBACK, choose_ports, is_free

START_S: Final = 30.0
WORKERS: Final = os.cpu_count() or 1  # processes
# Nothing is forgotten but what one second wrote: what BullMQ's documentation asks of production.
SETTINGS: Final = {
    "bind": LOOPBACK,
    "save": "",
    "appendonly": "yes",
    "appendfsync": "everysec",
    "maxmemory-policy": "noeviction",
}


@contextmanager
def opened(folder: Path, _: Rig) -> Iterator[Peer]:
    npm = ("npm", "install", "--silent", "--no-audit", "--no-fund", "--no-package-lock")
    installed("bullmq", folder, npm)
    programs = Programs(
        sender=("node", "producer.js"), worker=("node", "worker.js"), workers=WORKERS
    )
    with redis(folder) as store, Peer.open("bullmq", folder, programs, store=store) as peer:
        yield peer


@contextmanager
def redis(folder: Path) -> Iterator[tuple[str, int]]:
    """Its URL and its process."""
    port = choose_ports(["redis"], seed=str(folder), remembered={})["redis"]
    settings = [word for name, value in SETTINGS.items() for word in (f"--{name}", value)]
    daemon = BackgroundProcess("redis", folder)
    process = daemon.start(
        ("redis-server", "--port", str(port), *settings), environment=os.environ, directory=folder
    )
    try:
        daemon.await_ready(lambda: not is_free(port), limit=START_S)
        yield f"redis://{LOOPBACK}:{port}", process.pid
    finally:
        daemon.kill()
