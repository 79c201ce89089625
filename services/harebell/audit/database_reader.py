"""The statements of the doctor, and its read-only connection with the settings of the server."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Final

import asyncpg

from harebell.audit.model.database_facts import (
    DatabaseServer,
    DatabaseSessions,
    OldSnapshot,
    SchemaVersion,
)
from harebell.storage.engine import connect, refuse_pooler, translate_db_errors
from harebell.storage.migrate import known_revisions
from harebell.storage.role_passwords import ROLES
from harebell.storage.snapshot_holders import load_snapshot_holders

APPLICATION_NAME: Final = "harebell-doctor"
COMMAND_TIMEOUT: Final = 8.0  # seconds; below the time limit of a check
SAMPLE_PAUSE: Final = 1.0  # seconds between two readings of the snapshots

SETTINGS: Final = (
    "fsync",
    "full_page_writes",
    "synchronous_commit",
    "autovacuum",
    "track_counts",
    "idle_in_transaction_session_timeout",
)
TIME_AND_TLS: Final = (
    "SELECT clock_timestamp(), (SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid())"
)
_SERVER: Final = """
SELECT current_setting('server_version_num')::integer AS release,
    pg_is_in_recovery() AS is_standby, current_database()::text AS database
"""
_SETTINGS: Final = "SELECT name, setting FROM pg_settings WHERE name = ANY($1)"
# The last row of each setting has precedence: that of a role in this database.
_ROLE_SETTINGS: Final = """
SELECT coalesce(rolname::text, '') AS role, split_part(each, '=', 1) AS name,
    substr(each, strpos(each, '=') + 1) AS setting
FROM pg_db_role_setting LEFT JOIN pg_roles ON pg_roles.oid = setrole
    LEFT JOIN pg_database ON pg_database.oid = setdatabase, unnest(setconfig) AS each
WHERE coalesce(datname, current_database()) = current_database()
    AND (rolname = ANY($1) OR setrole = 0) AND split_part(each, '=', 1) = ANY($2)
ORDER BY setdatabase
"""
_SESSIONS: Final = """
SELECT current_setting('max_connections')::integer AS max_connections,
    current_setting('superuser_reserved_connections')::integer
        + coalesce(current_setting('reserved_connections', true)::integer, 0) AS reserved,
    count(*) FILTER (WHERE datname IS NOT NULL) AS used,
    count(DISTINCT application_name) FILTER (WHERE usename = ANY($1)
        AND datname = current_database() AND application_name NOT IN ($2, 'harebell-audit'))
        AS instances
FROM pg_stat_activity
"""
_CAN_READ_VERSION: Final = """
SELECT to_regclass('alembic_version') IS NOT NULL AS exists,
    has_table_privilege(to_regclass('alembic_version'), 'SELECT') AS is_readable
"""
# Null, and so no right, without the function.
_MAY_CALL_FUNCTION: Final = (
    "SELECT has_function_privilege(to_regprocedure('harebell_snapshot_holders()'), 'EXECUTE')"
)
_VERSION: Final = "SELECT max(version_num) FROM alembic_version"
# False before the migration that gives the right to the auditor.
_MAY_READ_TZDATA: Final = "SELECT has_table_privilege(to_regclass('tzdata_version'), 'SELECT')"
_TZDATA: Final = "SELECT version FROM tzdata_version"


@asynccontextmanager
async def connect_with_defaults(url: str) -> AsyncIterator[asyncpg.Connection]:
    """Open a connection that cannot write and has the settings of the server otherwise.

    Raise `DatabaseUnavailable`, and `InvalidInput` for the URL of a pooler.
    """
    refuse_pooler(url, "The doctor")
    settings = {"application_name": APPLICATION_NAME, "default_transaction_read_only": "on"}
    with translate_db_errors():
        connection = await connect(url, command_timeout=COMMAND_TIMEOUT, server_settings=settings)
    try:
        yield connection
    finally:
        connection.terminate()


async def load_time(connection: asyncpg.Connection) -> tuple[datetime, bool]:
    """Return the time of the database, and whether the connection is encrypted."""
    with translate_db_errors():
        time, is_encrypted = await connection.fetchrow(TIME_AND_TLS)
    return time, bool(is_encrypted)


async def load_server(connection: asyncpg.Connection) -> DatabaseServer:
    """Return the server with its settings."""
    with translate_db_errors():
        server = await connection.fetchrow(_SERVER)
        settings = await connection.fetch(_SETTINGS, SETTINGS)
        role_settings = await connection.fetch(_ROLE_SETTINGS, ROLES, SETTINGS)
    return DatabaseServer(
        **server,
        settings={row["name"]: row["setting"] for row in settings},
        role_settings={(row["role"], row["name"]): row["setting"] for row in role_settings},
    )


async def load_sessions(connection: asyncpg.Connection) -> DatabaseSessions:
    """Return the number of sessions and of the instances of services that have one."""
    with translate_db_errors():
        row = await connection.fetchrow(_SESSIONS, ROLES, APPLICATION_NAME)
    return DatabaseSessions(**row)


async def load_schema_version(connection: asyncpg.Connection) -> SchemaVersion:
    """Return the migration of the database and those of this version."""
    known = await asyncio.to_thread(known_revisions)  # the thread imports the files of them
    with translate_db_errors():
        found = await connection.fetchrow(_CAN_READ_VERSION)
        recorded = await connection.fetchval(_VERSION) if found["is_readable"] else None
    is_readable = bool(found["is_readable"]) or not found["exists"]
    return SchemaVersion(is_readable=is_readable, recorded=recorded, known=known)


async def load_tzdata_version(connection: asyncpg.Connection) -> str | None:
    """Return the version of the time zone data that a ticker planned with.

    Return None before the first ticker, and for a role without the right to read the version.
    """
    with translate_db_errors():
        if not await connection.fetchval(_MAY_READ_TZDATA):
            return None
        version = await connection.fetchval(_TZDATA)
    return None if version is None else str(version)


async def load_old_snapshots(connection: asyncpg.Connection) -> list[OldSnapshot] | None:
    """Return the snapshots that are the same in two readings, the oldest first.

    Return None before the migration that creates the function, and for a role without the right
    to call it.
    """
    with translate_db_errors():
        if not await connection.fetchval(_MAY_CALL_FUNCTION):
            return None
        first = {each.key for each in await load_snapshot_holders(connection)}
        await asyncio.sleep(SAMPLE_PAUSE)
        holders = await load_snapshot_holders(connection)
    return [
        OldSnapshot(
            kind=each.kind,
            pid=each.pid,
            application_name=each.application_name,
            username=each.username,
            state=each.state,
            age=None if each.since is None else (each.read_at - each.since).total_seconds(),
            transactions=each.transactions,
        )
        for each in holders
        if each.key in first and each.transactions > 0
    ]
