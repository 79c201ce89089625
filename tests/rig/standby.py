"""Two private PostgreSQL clusters: a primary, and a standby that a test promotes."""

import asyncio
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import asyncpg

from harebell.dev.os_user import unprivileged_user
from harebell.dev.ports import LOOPBACK, choose_ports
from harebell.dev.postgres import DATA, VERSIONS, Database

PASSWORD: Final = "for-tests"  # noqa: S105  # of a throwaway server
STANDBY_NAME: Final = "standby"
COMMAND_TIMEOUT: Final = 120.0  # seconds of a program of PostgreSQL, on a busy machine
PRIMARY, STANDBY = "primary", "standby"

STREAMING: Final = "SELECT count(*) FROM pg_stat_replication WHERE state = 'streaming'"
SYNCHRONOUS: Final = f"{STREAMING} AND sync_state = 'sync'"


class StandbyPair:
    """A primary and a standby that replicates from it.

    `is_synchronous` lets each commit wait for the standby. `kill_primary` and `promote` together
    are a failover. Both files of data remain until `discard`.
    """

    def __init__(self, root: Path, *, is_synchronous: bool = True) -> None:
        root.mkdir(parents=True, exist_ok=True)
        ports = choose_ports([PRIMARY, STANDBY], seed=str(root), remembered={})
        self.primary = self._database(root / PRIMARY, ports[PRIMARY])
        self.standby = self._database(root / STANDBY, ports[STANDBY])
        self._is_synchronous = is_synchronous

    @classmethod
    @contextmanager
    def open(cls, root: Path, *, is_synchronous: bool = True) -> Iterator["StandbyPair"]:
        pair = cls(root, is_synchronous=is_synchronous)
        try:
            pair.start()
            yield pair
        finally:
            pair.discard()

    @property
    def database_url(self) -> str:
        """The URL of the primary, whichever of both it is."""
        parts = urlsplit(self.primary.database_url)
        login = parts.netloc.rpartition("@")[0]
        hosts = ",".join(f"{LOOPBACK}:{each.port}" for each in (self.primary, self.standby))
        query = "target_session_attrs=read-write"
        return parts._replace(netloc=f"{login}@{hosts}", query=query).geturl()

    def start(self) -> None:
        self.primary.start()
        self.copy(self.primary, self.standby, "--write-recovery-conf")
        self.standby.start()
        if self._is_synchronous:
            asyncio.run(self._wait_for_standby())

    def discard(self) -> None:
        self.primary.discard()
        self.standby.discard()

    def kill_primary(self) -> None:
        """Kill the primary and its backends with SIGKILL."""
        self.primary.kill()

    def promote(self) -> None:
        """Promote the standby and wait until it accepts writes."""
        self.run_program("pg_ctl", "promote", "--wait", f"--pgdata={self.standby.directory / DATA}")

    async def stop_replication(self) -> None:
        """Stop the replication, so that a promotion loses each later commit of the primary.

        A paused replay would continue at the promotion, so the standby must receive nothing.
        """
        await self._execute(self.standby, "ALTER SYSTEM SET primary_conninfo = ''")
        await self._execute(self.standby, "SELECT pg_reload_conf()")

        connection = await asyncpg.connect(self.primary.database_url)
        try:
            async with asyncio.timeout(COMMAND_TIMEOUT):
                while await connection.fetchval(STREAMING):  # noqa: ASYNC110  # another process changes it
                    await asyncio.sleep(0.05)
        finally:
            await connection.close()

    def copy(self, source: Database, copy: Database, *options: str) -> None:
        """Copy the cluster of a running server with `pg_basebackup`."""
        copy.directory.mkdir(parents=True, exist_ok=True)
        if (user := unprivileged_user()) is not None:
            os.chown(copy.directory, user.uid, user.gid)
        address = f"host={LOOPBACK} port={source.port} user=harebell password={PASSWORD}"
        self.run_program(
            "pg_basebackup",
            f"--pgdata={copy.directory / DATA}",
            f"--dbname={address} application_name={STANDBY_NAME}",
            "--checkpoint=fast",
            "--wal-method=stream",
            "--no-sync",
            *options,
        )

    def run_program(self, name: str, *arguments: str) -> str:
        """Run a program of PostgreSQL as the user of the servers, and return its output."""
        user = unprivileged_user()
        finished = subprocess.run(  # noqa: S603  # a fixed command
            [str(program(name)), *arguments],
            env={"PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8"},
            cwd="/",
            user=None if user is None else user.uid,
            group=None if user is None else user.gid,
            extra_groups=None if user is None else [],
            capture_output=True,
            text=True,
            timeout=COMMAND_TIMEOUT,
            check=False,
        )
        assert finished.returncode == 0, f"{name}: {finished.stdout}{finished.stderr}"
        return finished.stdout

    async def _wait_for_standby(self) -> None:
        await self._execute(
            self.primary, f"ALTER SYSTEM SET synchronous_standby_names = '{STANDBY_NAME}'"
        )
        await self._execute(self.primary, "SELECT pg_reload_conf()")
        connection = await asyncpg.connect(self.primary.database_url)
        try:
            async with asyncio.timeout(COMMAND_TIMEOUT):
                while not await connection.fetchval(SYNCHRONOUS):  # noqa: ASYNC110  # as above
                    await asyncio.sleep(0.05)
        finally:
            await connection.close()

    @staticmethod
    async def _execute(database: Database, statement: str) -> None:
        connection = await asyncpg.connect(database.database_url)
        try:
            await connection.execute(statement)
        finally:
            await connection.close()

    @staticmethod
    def _database(directory: Path, port: int) -> Database:
        directory.mkdir(parents=True, exist_ok=True)
        return Database(directory, directory / "postgres", port=port, password=PASSWORD)


def program(name: str) -> Path:
    """Return the program of the newest installed version."""
    found = list(VERSIONS.glob(f"*/bin/{name}"))
    return max(found, key=lambda path: int(path.parent.parent.name))
