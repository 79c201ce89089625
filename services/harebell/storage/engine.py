"""Connections to PostgreSQL: pools with timeouts, error translation and cold reads."""

from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from datetime import datetime
from functools import partial
from typing import Any, Final

import asyncpg
from sqlalchemy import ClauseElement, Select
from sqlalchemy.dialects.postgresql import asyncpg as asyncpg_dialect
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine
from sqlalchemy.sql.compiler import SQLCompiler

from harebell.client.tls import BAD_CERTIFICATE, CertificateFault, certificate_fault
from harebell.contract.errors import DatabaseUnavailable
from harebell.runtime.database_url import read_database_url
from harebell.runtime.settings import PoolBounds
from harebell.storage import metrics

CONNECT_TIMEOUT: Final = 5.0  # seconds
# The client waits longer than `statement_timeout`, because only a silent connection needs this end.
COMMAND_TIMEOUT: Final = 12.0  # seconds
MAX_QUERIES_PER_CONNECTION: Final = 50_000  # before the pool replaces a connection
MAX_IDLE_TIME: Final = 300.0  # seconds until the pool closes a connection over its minimum
ENGINE_URL: Final = "postgresql+asyncpg://"  # selects the driver; `connect` has the address

# The partition of a new day has no statistics, so the planner would choose a bad join. A custom
# plan over months of partitions costs more than its statement.
HOT_PATH_SETTINGS: Final = {
    "plan_cache_mode": "force_generic_plan",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
}
# A frozen service loses its locks after these times.
TIMEOUT_SETTINGS: Final = {
    "idle_in_transaction_session_timeout": "10s",
    "lock_timeout": "3s",
    "statement_timeout": "10s",
    "tcp_user_timeout": "10s",
    "timezone": "UTC",
}

_ASYNCPG_DIALECT: Final = asyncpg_dialect.dialect()  # type: ignore[no-untyped-call]  # SQLAlchemy has no type for it

DATABASE_TIME: Final = "SELECT clock_timestamp()"

_TRANSIENT_ERRORS: Final = (
    asyncpg.PostgresConnectionError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,  # asyncpg raises it for a connection that is being closed
    asyncpg.OperatorInterventionError,
    asyncpg.InsufficientResourcesError,
    asyncpg.TransactionRollbackError,  # deadlocks and serialization failures
    asyncpg.LockNotAvailableError,
    asyncpg.IdleInTransactionSessionTimeoutError,
    asyncpg.InvalidCachedStatementError,  # a migration has changed a table of the statement
    OSError,
    TimeoutError,
    PoolTimeoutError,
)


@contextmanager
def translate_db_errors() -> Iterator[None]:
    """Raise `DatabaseUnavailable` for every error that a retry may avoid."""
    try:
        yield
    except CertificateFault as error:
        raise DatabaseUnavailable(str(error), code=BAD_CERTIFICATE) from error
    except _TRANSIENT_ERRORS as error:
        raise DatabaseUnavailable(str(error) or type(error).__name__) from error
    except DBAPIError as error:  # SQLAlchemy wraps the error of asyncpg
        cause = error.orig and error.orig.__cause__
        if not isinstance(cause, _TRANSIENT_ERRORS):
            raise
        raise DatabaseUnavailable(str(cause) or type(cause).__name__) from error


async def connect(
    url: str,
    *,
    timeout: float = CONNECT_TIMEOUT,  # noqa: ASYNC109  # passed to asyncpg
    **settings: Any,  # noqa: ANN401  # of asyncpg
) -> asyncpg.Connection:
    """Open a connection, as each pool, each engine and the migration do.

    Each call reads the files of the certificates again, so their rotation needs no restart.
    Raise `CertificateFault` if a certificate prevents the connection, and the errors of asyncpg.
    """
    address = read_database_url(url)
    ssl = address.ssl()
    try:
        return await asyncpg.connect(address.dsn, ssl=ssl, timeout=timeout, **settings)
    except OSError as error:
        for server in address.servers:
            if (fault := await certificate_fault(error, server)) is not None:
                raise fault from error
        raise


async def _connect_and_report(
    on_connect: Callable[[str | None], None] | None,
    url: str,
    **settings: Any,  # noqa: ANN401  # of asyncpg
) -> asyncpg.Connection:
    fault: str | None = None
    try:
        return await connect(url, **settings)
    except CertificateFault as error:
        fault = str(error)
        raise
    finally:
        if on_connect is not None:
            on_connect(fault)


class _Pool(asyncpg.Pool):  # type: ignore[misc]  # asyncpg has no types
    """A pool that raises `TimeoutError` instead of an endless wait for a free connection."""

    __slots__ = ("_acquire_timeout",)

    def __init__(
        self,
        url: str,
        bounds: PoolBounds,
        on_connect: Callable[[str | None], None] | None,
        **settings: Any,  # noqa: ANN401  # of asyncpg
    ) -> None:
        super().__init__(
            url,
            connect=partial(_connect_and_report, on_connect),
            min_size=bounds.min_size,
            max_size=bounds.max_size,
            max_queries=MAX_QUERIES_PER_CONNECTION,
            max_inactive_connection_lifetime=MAX_IDLE_TIME,
            loop=None,
            connection_class=asyncpg.Connection,
            record_class=asyncpg.Record,
            **settings,
        )
        self._acquire_timeout = bounds.acquire_timeout

    def acquire(self, *, timeout: float | None = None) -> Any:  # noqa: ANN401  # the type of asyncpg
        return super().acquire(timeout=self._acquire_timeout if timeout is None else timeout)


@asynccontextmanager
async def open_pool(
    url: str,
    *,
    name: str,
    hot: bool = True,
    bounds: PoolBounds | None = None,
    on_connect: Callable[[str | None], None] | None = None,
) -> AsyncIterator[asyncpg.Pool]:
    """Open a pool, which opens connections over its minimum when a statement needs one.

    After each try to connect, `on_connect` receives the fault of a certificate, or None.
    Raise `DatabaseUnavailable` if the minimum cannot be opened, and never if the minimum is 0.
    """
    settings = {**TIMEOUT_SETTINGS, **(HOT_PATH_SETTINGS if hot else {}), "application_name": name}
    pool = _Pool(
        url,
        bounds or PoolBounds(),
        on_connect,
        timeout=CONNECT_TIMEOUT,
        command_timeout=COMMAND_TIMEOUT,
        server_settings=settings,
        reset=_skip_reset,
        init=_measure_statements,
    )
    with translate_db_errors():
        await pool
    try:
        yield pool
    finally:
        pool.terminate()


async def _skip_reset(_: asyncpg.Connection) -> None:
    """Replace the reset of asyncpg, which sends four statements for each released connection.

    No transaction of Harebell leaves state in its session.
    """


async def _measure_statements(connection: asyncpg.Connection) -> None:
    connection.add_query_logger(lambda query: metrics.DATABASE_STATEMENT.observe(query.elapsed))


def open_engine(url: str, *, name: str, bounds: PoolBounds | None = None) -> AsyncEngine:
    """Return an engine for cold reads with SQLAlchemy Core (decision 1)."""
    bounds = bounds or PoolBounds()
    return create_async_engine(
        ENGINE_URL,
        async_creator=partial(
            connect,
            url,
            command_timeout=COMMAND_TIMEOUT,
            server_settings={**TIMEOUT_SETTINGS, "application_name": name},
        ),
        pool_size=bounds.max_size,
        max_overflow=0,
        pool_timeout=bounds.acquire_timeout,
        pool_pre_ping=True,
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
        now: Any = await pool.fetchval(DATABASE_TIME)
    assert isinstance(now, datetime)  # noqa: S101  # for the type checker
    return now
