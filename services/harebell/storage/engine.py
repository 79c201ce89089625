"""Connections: pools whose settings keep a frozen client from holding anything up for long."""

from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from datetime import datetime
from typing import Any, Final
from urllib.parse import urlsplit, urlunsplit

import asyncpg
from sqlalchemy import ClauseElement, Select
from sqlalchemy.dialects.postgresql import asyncpg as asyncpg_dialect
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine
from sqlalchemy.sql.compiler import SQLCompiler

from harebell.contract.errors import DatabaseUnavailable
from harebell.runtime.settings import PoolBounds
from harebell.storage import metrics

CONNECT_TIMEOUT: Final = 5.0  # seconds
COMMAND_TIMEOUT: Final = 12.0  # seconds; above statement_timeout, for a connection gone silent
MAX_QUERIES_PER_CONNECTION: Final = 50_000  # statements of a connection before it is replaced
MAX_IDLE_TIME: Final = 300.0  # seconds without use until a connection beyond the least is closed

# Plans: a new day's partition has no statistics, and a custom plan over months of partitions
# costs more than the statement. Timeouts: what a frozen service holds falls by itself.
HOT_PATH_SETTINGS: Final = {
    "plan_cache_mode": "force_generic_plan",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
}
TIMEOUT_SETTINGS: Final = {
    "idle_in_transaction_session_timeout": "10s",
    "lock_timeout": "3s",
    "statement_timeout": "10s",
    "tcp_user_timeout": "10s",
    "timezone": "UTC",
}

_ASYNCPG_DIALECT: Final = asyncpg_dialect.dialect()

_PASSING: Final = (
    asyncpg.PostgresConnectionError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,  # the driver met a connection in the middle of its end
    asyncpg.OperatorInterventionError,
    asyncpg.InsufficientResourcesError,
    asyncpg.TransactionRollbackError,  # deadlocks and serialization failures
    asyncpg.LockNotAvailableError,
    asyncpg.IdleInTransactionSessionTimeoutError,
    asyncpg.InvalidCachedStatementError,  # a migration changed a table since it was prepared
    OSError,
    TimeoutError,
    PoolTimeoutError,
)


@contextmanager
def translate_db_errors() -> Iterator[None]:
    """Raises `DatabaseUnavailable` for whatever may be over at the next try."""
    try:
        yield
    except _PASSING as error:
        raise DatabaseUnavailable(str(error) or type(error).__name__) from error
    except DBAPIError as error:  # SQLAlchemy's wrapping of the driver's
        cause = error.orig and error.orig.__cause__
        if not isinstance(cause, _PASSING):
            raise
        raise DatabaseUnavailable(str(cause) or type(cause).__name__) from error


def plain_url(url: str) -> str:
    """`postgresql+asyncpg://` and `postgres://` as the driver takes it."""
    parts = urlsplit(url)
    return urlunsplit(parts._replace(scheme="postgresql"))


class _Pool(asyncpg.Pool):  # type: ignore[misc]  # the driver ships no types
    """The driver's waits for a free connection for ever; this one raises `TimeoutError`."""

    __slots__ = ("_patience",)

    def __init__(self, url: str, bounds: PoolBounds, **settings: Any) -> None:  # noqa: ANN401
        super().__init__(
            url,
            min_size=bounds.min_size,
            max_size=bounds.max_size,
            max_queries=MAX_QUERIES_PER_CONNECTION,
            max_inactive_connection_lifetime=MAX_IDLE_TIME,
            loop=None,
            connection_class=asyncpg.Connection,
            record_class=asyncpg.Record,
            **settings,
        )
        self._patience = bounds.acquire_timeout

    def acquire(self, *, timeout: float | None = None) -> Any:  # noqa: ANN401  # as the driver's
        return super().acquire(timeout=self._patience if timeout is None else timeout)


@asynccontextmanager
async def open_pool(
    url: str, *, name: str, hot: bool = True, bounds: PoolBounds | None = None
) -> AsyncIterator[asyncpg.Pool]:
    """Connections beyond the least are made when they are needed.

    Raises `DatabaseUnavailable` if the least cannot be made, and never if that is none.
    """
    settings = {**TIMEOUT_SETTINGS, **(HOT_PATH_SETTINGS if hot else {}), "application_name": name}
    pool = _Pool(
        plain_url(url),
        bounds or PoolBounds(),
        timeout=CONNECT_TIMEOUT,
        command_timeout=COMMAND_TIMEOUT,
        server_settings=settings,
        reset=_keep,
        init=_watch,
    )
    with translate_db_errors():
        await pool
    try:
        yield pool
    finally:
        pool.terminate()


async def _keep(_: asyncpg.Connection) -> None:
    """Nothing to undo: no session of ours holds anything beyond its transaction.

    By default the driver sends four statements more whenever a connection goes back to the pool.
    """


async def _watch(connection: asyncpg.Connection) -> None:
    connection.add_query_logger(lambda query: metrics.DATABASE_STATEMENT.observe(query.elapsed))


def open_engine(url: str, *, name: str, bounds: PoolBounds | None = None) -> AsyncEngine:
    """For what is not hot: SQLAlchemy Core over the tables of `tables.py`."""
    bounds = bounds or PoolBounds()
    return create_async_engine(
        plain_url(url).replace("postgresql://", "postgresql+asyncpg://", 1),
        pool_size=bounds.max_size,
        max_overflow=0,
        pool_timeout=bounds.acquire_timeout,
        pool_pre_ping=True,
        connect_args={
            "timeout": CONNECT_TIMEOUT,
            "command_timeout": COMMAND_TIMEOUT,
            "server_settings": {**TIMEOUT_SETTINGS, "application_name": name},
        },
    )


def compile_statement(statement: ClauseElement) -> tuple[str, list[Any]]:
    """Return the SQL text of a Core statement and its parameters, for asyncpg.

    asyncpg encodes the parameters, so their types are those that asyncpg accepts.
    """
    compiled = statement.compile(
        dialect=_ASYNCPG_DIALECT, compile_kwargs={"render_postcompile": True}
    )
    assert isinstance(compiled, SQLCompiler)  # noqa: S101  # for the type checker
    return compiled.string, [compiled.params[name] for name in compiled.positiontup or ()]


async def fetch_rows(
    connection: asyncpg.Connection | AsyncConnection, statement: Select[Any]
) -> list[Mapping[str, Any]]:
    """Return the rows of a Core statement from a connection of either driver."""
    if isinstance(connection, AsyncConnection):
        return list((await connection.execute(statement)).mappings())
    text, parameters = compile_statement(statement)
    rows: list[Mapping[str, Any]] = await connection.fetch(text, *parameters)
    return rows


async def fetch_page(
    connection: asyncpg.Connection | AsyncConnection, statement: Select[Any], limit: int
) -> tuple[list[Mapping[str, Any]], bool]:
    """Return at most `limit` rows, and whether the statement has more rows."""
    rows = await fetch_rows(connection, statement.limit(limit + 1))
    return rows[:limit], len(rows) > limit


async def database_time(pool: asyncpg.Pool) -> datetime:
    with translate_db_errors():
        told: Any = await pool.fetchval("SELECT clock_timestamp()")
    assert isinstance(told, datetime)  # noqa: S101  # for the type checker
    return told
