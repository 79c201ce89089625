"""BullMQ on a private Redis."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tests.benchmarks.peers.peer import STORE, Peer, Programs, Store, install_programs
from tests.benchmarks.rig import Rig

from harebell.dev.pid_file import BackgroundProcess
from harebell.dev.ports import LOOPBACK, choose_ports, is_free

START_TIMEOUT: Final = 30.0
WORKERS: Final = os.cpu_count() or 1  # processes
# A crash loses at most the writes of one second, as the BullMQ documentation recommends.
SETTINGS: Final = {
    "bind": LOOPBACK,
    "save": "",
    "appendonly": "yes",
    "appendfsync": "everysec",
    "maxmemory-policy": "noeviction",
}


@contextmanager
def open_peer(folder: Path, _: Rig) -> Iterator[Peer]:
    npm = ("npm", "install", "--silent", "--no-audit", "--no-fund", "--no-package-lock")
    install_programs("bullmq", folder, npm)
    programs = Programs(
        sender=("node", "producer.js"), worker=("node", "worker.js"), workers=WORKERS
    )
    with (
        redis(folder) as store,
        Peer.open("bullmq", folder, programs, stores={STORE: store}) as peer,
    ):
        yield peer


@contextmanager
def redis(folder: Path) -> Iterator[Store]:
    """Yield a private Redis."""
    port = choose_ports(["redis"], seed=str(folder), remembered={})["redis"]
    settings = [word for name, value in SETTINGS.items() for word in (f"--{name}", value)]
    daemon = BackgroundProcess("redis", folder)
    process = daemon.start(
        ("redis-server", "--port", str(port), *settings), environment=os.environ, directory=folder
    )
    try:
        daemon.await_ready(lambda: not is_free(port), limit=START_TIMEOUT)
        yield Store(name="store", url=f"redis://{LOOPBACK}:{port}", pid=process.pid)
    finally:
        daemon.kill()
