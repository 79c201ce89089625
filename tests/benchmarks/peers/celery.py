"""Celery on the private RabbitMQ, with a separate virtual host and a separate environment.

The peer `celery-results` waits for confirms and keeps a result of each task in PostgreSQL, which is
the nearest to what Harebell promises.
"""

import asyncio
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from tests.benchmarks.peers.peer import RESULTS, STORE, Peer, Programs, Store, install_programs
from tests.benchmarks.rig import Rig

REQUIREMENT: Final = "celery>=5.7,<5.8"
DATABASE_REQUIREMENTS: Final = ("sqlalchemy>=2,<3", "psycopg[binary]>=3.2,<4")
WORKERS: Final = os.cpu_count() or 1  # processes
# Threads, because a child process costs more than a short task. But with results, each thread would
# connect to the database for each task.
THREADS: Final = ("--pool", "threads", "--concurrency", "2")
CHILDREN: Final = ("--pool", "prefork", "--concurrency", "1")
# Only monitoring needs the messages between workers.
OPTIONS: Final = (
    "--without-gossip",
    "--without-mingle",
    "--without-heartbeat",
)


@contextmanager
def open_peer(folder: Path, rig: Rig) -> Iterator[Peer]:
    with _open("celery", folder, rig, further={}) as peer:
        yield peer


@contextmanager
def open_peer_with_results(folder: Path, rig: Rig) -> Iterator[Peer]:
    database = asyncio.run(rig.stack.servers.make_database())
    url = urlsplit(database)._replace(scheme="postgresql+psycopg").geturl()
    results = Store(name="results", url=url, pid=rig.pids()["database"])
    with _open("celery-results", folder, rig, further={RESULTS: results}) as peer:
        yield peer


@contextmanager
def _open(name: str, folder: Path, rig: Rig, *, further: Mapping[str, Store]) -> Iterator[Peer]:
    servers = rig.stack.servers
    python = str(folder / "venv/bin/python")
    pip = (python, "-m", "pip", "-qq", "--disable-pip-version-check", "install")
    packages = (*pip, REQUIREMENT, *(DATABASE_REQUIREMENTS if further else ()))
    install_programs("celery", folder, (sys.executable, "-m", "venv", "venv"), packages)
    pool = CHILDREN if further else THREADS
    worker = (python, "-m", "celery", "--app", "bench", "worker", *pool, *OPTIONS)
    programs = Programs(sender=(python, "bench.py"), worker=worker, workers=WORKERS)
    rabbitmq = servers.management("GET", "overview")["rabbitmq_version"]
    with servers.virtual_host(name) as url:
        store = Store(name="store", url=url, pid=rig.pids()["broker"])
        stores = {STORE: store, **further}
        with Peer.open(name, folder, programs, stores=stores) as peer:
            peer.versions["rabbitmq"] = rabbitmq
            yield peer
