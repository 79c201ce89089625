"""Brings a database to the schema of this version, and lets the services' roles log in."""

from pathlib import Path
from typing import Final

from alembic import command
from alembic.config import Config
from sqlalchemy import Connection, text
from sqlalchemy.ext.asyncio import AsyncConnection, create_async_engine

from harebell.kernel.db.engine import plain_url
from harebell.kernel.db.partitions import ENSURE

ROLES: Final = (
    "harebell_intake",
    "harebell_ticker",
    "harebell_dispatcher",
    "harebell_executor",
    "harebell_dlq_inspector",
    "harebell_auditor",
)
_LOCK: Final = 4_711_001  # two migrations of one database wait for each other
_DIRECTORY: Final = Path(__file__).parent / "migrations"


async def migrate(database_url: str, *, role_password: str | None = None) -> None:
    """To the newest schema, as the database's owner. Idempotent; several may run at once."""
    engine = create_async_engine(plain_url(database_url).replace("://", "+asyncpg://", 1))
    try:
        async with engine.connect() as connection:
            await connection.execute(text("SELECT pg_advisory_lock(:lock)"), {"lock": _LOCK})
            await connection.commit()
            await connection.run_sync(_upgrade)
            await connection.execute(text(ENSURE))
            if role_password is not None:
                await _let_in(connection, role_password)
            await connection.commit()
    finally:
        await engine.dispose()


def _upgrade(connection: Connection) -> None:
    config = Config()
    config.set_main_option("script_location", str(_DIRECTORY))
    config.attributes["connection"] = connection
    command.upgrade(config, "head")


async def _let_in(connection: AsyncConnection, password: str) -> None:
    quoted = password.replace("'", "''")
    for role in ROLES:
        await connection.execute(text(f"ALTER ROLE {role} LOGIN PASSWORD '{quoted}'"))
