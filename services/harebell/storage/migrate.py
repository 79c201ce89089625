"""Brings a database to the schema of this version, and lets the services' roles log in."""

import asyncio
from pathlib import Path
from typing import Final

from alembic import command
from alembic.config import Config
from sqlalchemy import Connection, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncConnection, create_async_engine

from harebell.domain.run_states import RETENTION
from harebell.storage.engine import plain_url

ROLES: Final = (
    "harebell_intake",
    "harebell_ticker",
    "harebell_dispatcher",
    "harebell_executor",
    "harebell_dlq_inspector",
    "harebell_auditor",
)
LOCK_TIMEOUT: Final = "500ms"  # so long others may wait for their turn behind a migration's
MAX_TRIES: Final = 120  # of a migration that was not given its lock in time
RETRY_PAUSE: Final = 1.0  # seconds between two tries
_LOCK: Final = 4_711_001  # two migrations of one database wait for each other
_LOCKED: Final = "55P03"
_DIRECTORY: Final = Path(__file__).parent / "migrations"


async def migrate(database_url: str, *, role_password: str | None = None, to: str = "head") -> None:
    """To the newest schema, as the database's owner. Idempotent; several may run at once.

    Services may go on meanwhile. Each migration is a transaction: one that is killed, or not given
    a lock in time, has done nothing.
    """
    engine = create_async_engine(
        plain_url(database_url).replace("://", "+asyncpg://", 1),
        connect_args={"server_settings": {"lock_timeout": LOCK_TIMEOUT}},
    )
    try:
        async with engine.connect() as connection:
            await _be_alone(connection)
            await _patiently(connection, to)
            if role_password is not None:
                await _let_in(connection, role_password)
            await connection.commit()
    finally:
        await engine.dispose()


async def _be_alone(connection: AsyncConnection) -> None:
    """Looks again and again: to wait in a statement would hold up an index made concurrently."""
    asked = text("SELECT pg_try_advisory_lock(:lock)")
    while not (await connection.execute(asked, {"lock": _LOCK})).scalar():
        await connection.commit()
        await asyncio.sleep(RETRY_PAUSE)
    await connection.commit()


async def _patiently(connection: AsyncConnection, to: str) -> None:
    for left in reversed(range(MAX_TRIES)):
        try:
            await connection.run_sync(_upgrade, to)
            await connection.execute(text(ENSURE))
            return await connection.commit()
        except DBAPIError as error:
            if not left or getattr(error.orig, "sqlstate", None) != _LOCKED:
                raise
        await connection.rollback()
        await asyncio.sleep(RETRY_PAUSE)
    return None


def _upgrade(connection: Connection, to: str) -> None:
    config = Config()
    config.set_main_option("script_location", str(_DIRECTORY))
    config.attributes["connection"] = connection
    command.upgrade(config, to)


async def _let_in(connection: AsyncConnection, password: str) -> None:
    quoted = password.replace("'", "''")
    for role in ROLES:
        await connection.execute(text(f"ALTER ROLE {role} LOGIN PASSWORD '{quoted}'"))


DAYS_BACK: Final = RETENTION.days
DAYS_AHEAD: Final = 8
ENSURE: Final = (
    f"SELECT harebell_ensure_partitions(current_date - {DAYS_BACK}, current_date + {DAYS_AHEAD})"
)
