"""The servers of the tests: private servers, or the servers that the environment names."""

import base64
import fcntl
import json
import os
import shutil
import tempfile
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import asyncpg
from tests.rig.broker_versions import server_command

from harebell.dev.rabbitmq import Broker
from harebell.dev.servers import PrivateServers, run_concurrently
from harebell.storage.migrate import migrate
from harebell.storage.role_passwords import ROLES

ROLE_PASSWORD = "for-tests"  # noqa: S105  # of a throwaway database
TEMPLATE = "harebell_template"
SHARED_MEMORY = Path("/dev/shm")  # noqa: S108  # each session makes a directory with a random name
MIN_FREE_MEMORY = 4 * 1024**3  # bytes
# The variable names a folder whose private servers several sessions use, one after the other.
# The first session starts the servers, and the caller of the sessions discards them.
SHARED_SERVERS = "HAREBELL_TEST_SERVERS"
# The variable names a folder whose private broker all workers of a suite use, because its start
# takes 9 s of CPU time. The first worker starts it, and the suite discards it.
SHARED_BROKER = "HAREBELL_TEST_BROKER"
_numbers = count(1)


@contextmanager
def server_directory(disk_directory: Path) -> Iterator[Path]:
    """Yield an empty directory in shared memory, or `disk_directory` if memory is scarce.

    PostgreSQL creates 400 files for each database, which takes up to a second on an ext4 disk.
    A killed process loses nothing that it has written to either directory.
    """
    if not SHARED_MEMORY.is_dir() or shutil.disk_usage(SHARED_MEMORY).free < MIN_FREE_MEMORY:
        yield disk_directory
        return
    with tempfile.TemporaryDirectory(dir=SHARED_MEMORY, prefix="harebell-") as directory:
        root = Path(directory)
        root.chmod(0o755)  # PostgreSQL runs as another user when the tests run as root
        yield root


def private_servers(root: Path) -> PrivateServers:
    """Return private servers, with the RabbitMQ version of `make test BROKER=4.3`."""
    return PrivateServers(
        root, broker_command=server_command(os.environ.get("BROKER") or None, os.environ)
    )


def manage(broker: Broker, method: str, path: str, body: Any = None) -> Any:
    """Call the management API of a node and return its JSON response."""
    parts = urlsplit(broker.amqp_url)
    token = base64.b64encode(f"{parts.username}:{parts.password}".encode()).decode()
    request = urllib.request.Request(  # noqa: S310  # loopback
        f"{broker.management_url}/api/{path}",
        method=method,
        data=None if body is None else json.dumps(body).encode(),
        headers={"Authorization": f"Basic {token}", "Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=10) as response:  # noqa: S310  # loopback
        text = response.read()
    return json.loads(text) if text else None


@contextmanager
def _started(private: PrivateServers) -> Iterator[PrivateServers]:
    """Start private servers, but with the shared broker of the suite if there is one."""
    shared = os.environ.get(SHARED_BROKER)
    if not shared:
        try:
            private.start()
            yield private
        finally:
            private.discard()
        return
    brokers: list[Broker] = []
    try:
        run_concurrently(
            [
                lambda: private.start(broker=False),
                lambda: brokers.append(_shared_broker(Path(shared))),
            ]
        )
        (private.broker,) = brokers
        yield private
    finally:
        private.database.discard()


def _shared_broker(root: Path) -> Broker:
    with (root / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        shared = private_servers(root)
        shared.start(database=False)
    return shared.broker


@contextmanager
def shared_broker() -> Iterator[Mapping[str, str]]:
    """Yield the environment in which all sessions share a broker, and discard the broker."""
    with (
        tempfile.TemporaryDirectory(prefix="harebell-") as disk,
        server_directory(Path(disk)) as root,
    ):
        try:
            yield {SHARED_BROKER: str(root)}
        finally:
            private_servers(root).broker.discard()


@dataclass(frozen=True)
class Servers:
    """The servers of one session.

    `private` is None if the environment names the servers, which tests must not kill.
    """

    amqp_url: str
    database_url: str
    private: PrivateServers | None

    @classmethod
    @contextmanager
    def open(cls, root: Path) -> Iterator["Servers"]:
        amqp, database = (os.environ.get(f"HAREBELL_{k}_URL") for k in ("AMQP", "DATABASE"))
        if amqp and database:
            yield cls(amqp, database, None)
            return
        if shared := os.environ.get(SHARED_SERVERS):
            private = private_servers(Path(shared))
            private.start()
            yield cls(private.amqp_url, private.database_url, private)
            return
        with _started(private_servers(root)) as private:
            yield cls(private.amqp_url, private.database_url, private)

    def management(self, method: str, path: str, body: Any = None) -> Any:
        """Call the management API of the private broker and return its JSON response."""
        assert self.private is not None
        return manage(self.private.broker, method, path, body)

    def connections(self, amqp_url: str) -> list[dict[str, Any]]:
        """Return the connections of a virtual host, some seconds after they were opened."""
        host = quote(urlsplit(amqp_url).path.removeprefix("/"), safe="")
        found: list[dict[str, Any]] = self.management("GET", f"vhosts/{host}/connections")
        return found

    @contextmanager
    def virtual_host(self, name: str | None = None) -> Iterator[str]:
        """Yield the URL of an empty virtual host, or the URL of a broker that is not private."""
        if self.private is None:
            yield self.amqp_url
            return
        name = name or f"test-{os.getpid()}-{next(_numbers)}"
        user = urlsplit(self.amqp_url).username
        all_permissions = {"configure": ".*", "write": ".*", "read": ".*"}
        self.management("PUT", f"vhosts/{name}", {})
        self.management("PUT", f"permissions/{name}/{user}", all_permissions)
        try:
            yield f"{self.amqp_url.rstrip('/')}/{name}"
        finally:
            self.management("DELETE", f"vhosts/{name}")

    async def make_database(self) -> str:
        """Return the URL of a fresh, migrated database with its owner as the user."""
        connection = await asyncpg.connect(self.database_url)
        try:
            exists = "SELECT 1 FROM pg_database WHERE datname = $1"
            if not await connection.fetchval(exists, TEMPLATE):
                await connection.execute(f"CREATE DATABASE {TEMPLATE}")
                passwords = dict.fromkeys(ROLES, ROLE_PASSWORD)
                await migrate(self._at(TEMPLATE), role_passwords=passwords)
            name = f"test_{os.getpid()}_{next(_numbers)}"
            # A copy of the files costs half the CPU time of a copy through the log.
            copy = f"CREATE DATABASE {name} TEMPLATE {TEMPLATE} STRATEGY file_copy"
            await connection.execute(copy)
        finally:
            await connection.close()
        return self._at(name)

    async def drop_database(self, url: str) -> None:
        connection = await asyncpg.connect(self.database_url)
        try:
            name = urlsplit(url).path.strip("/")
            await connection.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")
        finally:
            await connection.close()

    def _at(self, name: str) -> str:
        return urlsplit(self.database_url)._replace(path=f"/{name}").geturl()


def as_role(database_url: str, service: str) -> str:
    """Return the URL of the same database with the role of a service as the user."""
    parts = urlsplit(database_url)
    address = parts.netloc.rpartition("@")[2]  # one or several hosts
    return parts._replace(netloc=f"harebell_{service}:{ROLE_PASSWORD}@{address}").geturl()


async def refuse_connections(owner: asyncpg.Connection) -> None:
    """Refuse new connections of services and end their open connections.

    PostgreSQL refuses them with the error that it also returns for too many connections.
    """
    (name,) = await owner.fetchrow("SELECT current_database()")
    await owner.execute(f"ALTER DATABASE {name} CONNECTION LIMIT 0")
    await owner.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
        "WHERE datname = current_database() AND pid <> pg_backend_pid()"
    )


async def accept_connections(owner: asyncpg.Connection) -> None:
    (name,) = await owner.fetchrow("SELECT current_database()")
    await owner.execute(f"ALTER DATABASE {name} CONNECTION LIMIT -1")
