"""The servers that tests run on: private ones, or those that the environment names."""

import base64
import json
import os
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import asyncpg

from harebell.dev.rabbitmq import Broker
from harebell.dev.servers import PrivateServers
from harebell.storage.migrate import migrate

ROLE_PASSWORD = "for-tests"  # noqa: S105  # of a throwaway database
TEMPLATE = "harebell_template"
_numbers = count(1)


def private_servers(root: Path) -> PrivateServers:
    """Of the release that `make test BROKER=4.3` names."""
    return PrivateServers(root, release=os.environ.get("BROKER") or None)


def manage(broker: Broker, method: str, path: str, body: Any = None) -> Any:
    """A call to the management API of a node."""
    parts = urlsplit(broker.amqp_url)
    token = base64.b64encode(f"{parts.username}:{parts.password}".encode()).decode()
    request = urllib.request.Request(  # noqa: S310  # loopback
        f"{broker.management_url}/api/{path}",
        method=method,
        data=None if body is None else json.dumps(body).encode(),
        headers={"Authorization": f"Basic {token}", "Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=10) as response:  # noqa: S310
        text = response.read()
    return json.loads(text) if text else None


@dataclass(frozen=True)
class Servers:
    """`private` is None when the servers were given by URL: nothing may be killed then."""

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
        private = private_servers(root)
        try:
            private.start()
            yield cls(private.amqp_url, private.database_url, private)
        finally:
            private.discard()

    def management(self, method: str, path: str, body: Any = None) -> Any:
        """A call to the management API of the private broker."""
        assert self.private is not None
        return manage(self.private.broker, method, path, body)

    @contextmanager
    def virtual_host(self, name: str | None = None) -> Iterator[str]:
        """The URL of an empty virtual host; of a given broker, what was given."""
        if self.private is None:
            yield self.amqp_url
            return
        name = name or f"test-{next(_numbers)}"
        user = urlsplit(self.amqp_url).username
        everything = {"configure": ".*", "write": ".*", "read": ".*"}
        self.management("PUT", f"vhosts/{name}", {})
        self.management("PUT", f"permissions/{name}/{user}", everything)
        try:
            yield f"{self.amqp_url.rstrip('/')}/{name}"
        finally:
            self.management("DELETE", f"vhosts/{name}")

    async def make_database(self) -> str:
        """The URL of a fresh database of the newest schema, as its owner."""
        connection = await asyncpg.connect(self.database_url)
        try:
            known = "SELECT 1 FROM pg_database WHERE datname = $1"
            if not await connection.fetchval(known, TEMPLATE):
                await connection.execute(f"CREATE DATABASE {TEMPLATE}")
                await migrate(self._at(TEMPLATE), role_password=ROLE_PASSWORD)
            name = f"test_{os.getpid()}_{next(_numbers)}"
            await connection.execute(f"CREATE DATABASE {name} TEMPLATE {TEMPLATE}")
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
    """The same database, logged in as a service's role."""
    parts = urlsplit(database_url)
    place = f"{parts.hostname}:{parts.port or 5432}"
    return parts._replace(netloc=f"harebell_{service}:{ROLE_PASSWORD}@{place}").geturl()


async def refuse_connections(owner: asyncpg.Connection) -> None:
    """As when there are too many: new ones of services are refused, old ones are ended."""
    (name,) = await owner.fetchrow("SELECT current_database()")
    await owner.execute(f"ALTER DATABASE {name} CONNECTION LIMIT 0")
    await owner.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
        "WHERE datname = current_database() AND pid <> pg_backend_pid()"
    )


async def accept_connections(owner: asyncpg.Connection) -> None:
    (name,) = await owner.fetchrow("SELECT current_database()")
    await owner.execute(f"ALTER DATABASE {name} CONNECTION LIMIT -1")
