"""A private pgbouncer in transaction mode before a private PostgreSQL."""

import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from tests.rig.servers import ROLE_PASSWORD

from harebell.dev.os_user import unprivileged_user
from harebell.dev.ports import LOOPBACK, choose_ports
from harebell.storage.role_passwords import ROLES

PROGRAM: Final = "/usr/sbin/pgbouncer"  # of Debian
START_TIMEOUT: Final = 20.0  # seconds, on a busy machine
POOL_SIZE: Final = 8  # sessions of one role, fewer than its clients

CONFIGURATION: Final = """\
[databases]
* = host={host} port={server_port}
[pgbouncer]
listen_addr = {host}
listen_port = {port}
unix_socket_dir =
auth_type = scram-sha-256
auth_file = {users}
pool_mode = transaction
max_client_conn = 500
default_pool_size = {pool_size}
"""


class TransactionPooler:
    """One pgbouncer, which a test may kill and start again on the same port."""

    def __init__(self, root: Path, database_url: str) -> None:
        self._root = root
        self._server = urlsplit(database_url)
        self.port = choose_ports(["pgbouncer"], seed=f"pooler {root}", remembered={})["pgbouncer"]
        self._process: subprocess.Popen[bytes] | None = None

    @classmethod
    @contextmanager
    def open(cls, root: Path, database_url: str) -> Iterator["TransactionPooler"]:
        pooler = cls(root, database_url)
        try:
            pooler.start()
            yield pooler
        finally:
            pooler.kill()

    def url(self, database_url: str) -> str:
        """Return the URL of the database through the pooler."""
        parts = urlsplit(database_url)
        login = parts.netloc.rpartition("@")[0]
        netloc = f"{login}@{LOOPBACK}:{self.port}"
        return parts._replace(netloc=netloc, query="pooler=transaction").geturl()

    def start(self) -> None:
        """Start the pooler and wait until it accepts connections."""
        configuration, users = self._root / "pgbouncer.ini", self._root / "users.txt"
        users.write_text("".join(f'"{role}" "{ROLE_PASSWORD}"\n' for role in ROLES))
        configuration.write_text(
            CONFIGURATION.format(
                host=LOOPBACK,
                port=self.port,
                server_port=self._server.port,
                users=users,
                pool_size=POOL_SIZE,
            )
        )
        user = unprivileged_user()
        for file in (configuration, users):
            file.chmod(0o600)
            if user is not None:
                os.chown(file, user.uid, user.gid)
        with (self._root / "pgbouncer.log").open("ab") as log:
            self._process = subprocess.Popen(  # noqa: S603  # a fixed command
                [PROGRAM, str(configuration)],
                stdout=log,
                stderr=log,
                cwd="/",
                user=None if user is None else user.uid,
                group=None if user is None else user.gid,
                extra_groups=None if user is None else [],
            )
        self._await_port()

    def kill(self) -> None:
        if self._process is not None:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait()

    def _await_port(self) -> None:
        deadline = time.monotonic() + START_TIMEOUT
        while time.monotonic() < deadline:
            with suppress(OSError), socket.create_connection((LOOPBACK, self.port), timeout=1):
                return
            time.sleep(0.05)
        raise AssertionError((self._root / "pgbouncer.log").read_text())
