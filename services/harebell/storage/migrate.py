"""Migration of a database to the present schema, and the logins of the service roles."""

import asyncio
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Final

import structlog
from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncConnection, create_async_engine

from harebell.contract.errors import DatabaseUnavailable
from harebell.domain.run_states import RETENTION
from harebell.storage.engine import connect, refuse_pooler, translate_db_errors
from harebell.storage.role_passwords import SALT_BYTES, scram_verifier

DAYS_BACK: Final = RETENTION.days
DAYS_AHEAD: Final = 8
ENSURE_PARTITIONS: Final = (
    f"SELECT harebell_ensure_partitions(current_date - {DAYS_BACK}, current_date + {DAYS_AHEAD})"
)
# Other statements wait behind a migration that waits for its lock, so its wait must be short.
LOCK_TIMEOUT: Final = "500ms"
MAX_TRIES: Final = 120  # of a migration that does not get its lock in time
CONNECT_TIMEOUT: Final = 60.0  # seconds; no other part of the start repeats the connection
RETRY_PAUSE: Final = 1.0  # seconds
ENGINE_URL: Final = "postgresql+asyncpg://"  # selects the driver; `connect` has the address
WAIT_PAUSE: Final = 2.0  # seconds between two tries to reach the database

log = structlog.get_logger()

_MIGRATION_LOCK: Final = 4_711_001  # the advisory lock that one migration of a database has
_LOCK_NOT_AVAILABLE: Final = "55P03"  # SQLSTATE
_DIRECTORY: Final = Path(__file__).parent / "migrations"


async def migrate(
    database_url: str, *, role_passwords: Mapping[str, str] | None = None, to: str = "head"
) -> None:
    """Migrate to the schema `to` as the owner of the database. A repeated call changes nothing.

    Several migrations of one database may run at once, and services may use the database.
    Each migration is a transaction, so a killed migration has no effect.
    `role_passwords` contains the new passwords of the roles that may log in.
    Raise `DBAPIError` if a migration does not get its lock in `MAX_TRIES` tries.
    Raise `InvalidInput` for the URL of a pooler, whose sessions have no advisory lock.
    """
    refuse_pooler(database_url, "The migration")
    engine = create_async_engine(
        ENGINE_URL,
        async_creator=partial(
            connect,
            database_url,
            timeout=CONNECT_TIMEOUT,
            server_settings={"lock_timeout": LOCK_TIMEOUT},
        ),
    )
    try:
        async with engine.connect() as connection:
            await _wait_for_other_migrations(connection)
            await _upgrade_with_retries(connection, to)
            await _allow_logins(connection, role_passwords or {})
            await connection.commit()
    finally:
        await engine.dispose()


@contextmanager
def errors_of_asyncpg() -> Iterator[None]:
    """Raise the errors of asyncpg that SQLAlchemy wraps."""
    try:
        yield
    except DBAPIError as error:
        cause = error.orig and error.orig.__cause__
        if cause is None:
            raise
        raise cause from error


def known_revisions() -> tuple[str, ...]:
    """Return the migrations of this version, the first one first. Import their files."""
    newest_first = ScriptDirectory(str(_DIRECTORY)).walk_revisions()
    return tuple(each.revision for each in newest_first)[::-1]


async def migrate_when_available(
    database_url: str, *, role_passwords: Mapping[str, str], wait: timedelta
) -> None:
    """Migrate, and wait up to `wait` for a database that is not available, as after a boot.

    Raise `DatabaseUnavailable` if the database is still not available then.
    """
    deadline = asyncio.get_running_loop().time() + wait.total_seconds()
    while True:
        try:
            with translate_db_errors(), errors_of_asyncpg():
                return await migrate(database_url, role_passwords=role_passwords)
        except DatabaseUnavailable as error:
            if asyncio.get_running_loop().time() >= deadline:
                raise
            log.warning("database unavailable", reason=error.reason)
            await asyncio.sleep(WAIT_PAUSE)


async def _wait_for_other_migrations(connection: AsyncConnection) -> None:
    """Poll the advisory lock.

    A statement that waits for the lock has a snapshot, and CREATE INDEX CONCURRENTLY waits for
    every older snapshot.
    """
    statement = text("SELECT pg_try_advisory_lock(:lock)")
    while not (await connection.execute(statement, {"lock": _MIGRATION_LOCK})).scalar():
        await connection.commit()
        await asyncio.sleep(RETRY_PAUSE)
    await connection.commit()


async def _upgrade_with_retries(connection: AsyncConnection, to: str) -> None:
    for tries_left in reversed(range(MAX_TRIES)):
        try:
            await connection.run_sync(_upgrade, to)
            await connection.execute(text(ENSURE_PARTITIONS))
            return await connection.commit()
        except DBAPIError as error:
            if not tries_left or getattr(error.orig, "sqlstate", None) != _LOCK_NOT_AVAILABLE:
                raise
        await connection.rollback()
        await asyncio.sleep(RETRY_PAUSE)
    return None


def _upgrade(connection: Connection, to: str) -> None:
    config = Config()
    config.set_main_option("script_location", str(_DIRECTORY))
    config.attributes["connection"] = connection
    command.upgrade(config, to)


async def _allow_logins(connection: AsyncConnection, passwords: Mapping[str, str]) -> None:
    """Set the passwords as verifiers, so that no log of statements contains a password."""
    for role, password in passwords.items():
        verifier = scram_verifier(password, secrets.token_bytes(SALT_BYTES))
        # `text` would take a colon of the verifier for a parameter.
        await connection.exec_driver_sql(f"ALTER ROLE {role} LOGIN PASSWORD '{verifier}'")
