"""The audit's connection: for reading only, and patient; nobody waits for it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

import asyncpg

from harebell.kernel.db.engine import (
    CONNECT_TIMEOUT,
    TIMEOUT_SETTINGS,
    plain_url,
    translate_db_errors,
)

NAME: Final = "harebell-audit"
STATEMENT: Final = "60s"  # a stretch of a day's rows, cold
COMMAND_TIMEOUT: Final = 65.0  # seconds; above it, for a connection gone silent


@asynccontextmanager
async def connect_read_only(url: str) -> AsyncIterator[asyncpg.Connection]:
    """Raises `DatabaseUnavailable`."""
    settings = TIMEOUT_SETTINGS | {
        "application_name": NAME,
        "default_transaction_read_only": "on",
        "idle_in_transaction_session_timeout": STATEMENT,
        "statement_timeout": STATEMENT,
    }
    with translate_db_errors():
        connection = await asyncpg.connect(
            plain_url(url),
            timeout=CONNECT_TIMEOUT,
            command_timeout=COMMAND_TIMEOUT,
            server_settings=settings,
        )
    try:
        yield connection
    finally:
        connection.terminate()
