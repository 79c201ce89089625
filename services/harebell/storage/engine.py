"""Connections to PostgreSQL: pools with timeouts, error translation and cold reads."""

from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from datetime import datetime
from functools import partial
from typing import Any, Final

import asyncpg
from sqlalchemy import ClauseElement, Select
from sqlalchemy.dialects.postgresql import asyncpg as asyncpg_dialect
from sqlalchemy.sql.compiler import SQLCompiler

from harebell.connection.cancellation import raise_if_cancelled
from harebell.connection.tls import BAD_CERTIFICATE, CertificateFault, certificate_fault
from harebell.contract.errors import DatabaseUnavailable, InvalidInput
from harebell.runtime.database_url import (
    FIELD,
    DatabaseUrl,
    Pooler,
    SessionTarget,
    read_database_url,
)
from harebell.runtime.retries import WriteConflict
from harebell.runtime.settings import PoolBounds
from harebell.storage import metrics
from harebell.storage.role_passwords import ROLES

CONNECT_TIMEOUT: Final = 5.0  # seconds
# The client waits longer than `statement_timeout`, because only a silent connection needs this end.
COMMAND_TIMEOUT: Final = 12.0  # seconds
MAX_QUERIES_PER_CONNECTION: Final = 50_000  # before the pool replaces a connection
# A `now` that comes alone starts sooner if its connections are open and its statements prepared
# (decision 121).
MAX_IDLE_TIME: Final = 3_900  # seconds until the pool closes a connection over its minimum
STATEMENT_LIFETIME: Final = MAX_IDLE_TIME  # seconds until a connection prepares a statement again

# The partition of a new day has no statistics, so the planner would choose a bad join. A custom
# plan over months of partitions costs more than its statement.
HOT_PATH_SETTINGS: Final = {
    "plan_cache_mode": "force_generic_plan",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
}
# A frozen service loses its locks after these times. Keepalives each minute tell firewalls that an
# idle connection is in use. With `jit`, PostgreSQL would compile a costly plan at each execution,
# for longer than the statement takes.
SESSION_SETTINGS: Final = {
    "idle_in_transaction_session_timeout": "10s",
    "lock_timeout": "3s",
    "statement_timeout": "10s",
    "tcp_keepalives_idle": "60",
    "tcp_user_timeout": "10s",
    "timezone": "UTC",
    "jit": "off",
}
# For a transaction that only reads, and that computes or pauses between its statements.
MAY_IDLE: Final = "SET LOCAL idle_in_transaction_session_timeout = '60s'"

# The parameters that pgbouncer sets in a session of the server for each client.
POOLED_SETTINGS: Final = ("application_name", "timezone")
# The pooler has the connection to the server, and each client sends its own time zone.
_NOT_OF_ROLES: Final = ("tcp_keepalives_idle", "tcp_user_timeout", "timezone")
AUDITOR: Final = "harebell_auditor"  # reads for longer, and connects without a pooler
INTAKE: Final = "harebell_intake"

_ASYNCPG_DIALECT: Final = asyncpg_dialect.dialect()  # type: ignore[no-untyped-call]  # SQLAlchemy has no type for it

# The server of the last connection of each URL with several servers.
_LAST_SERVERS: Final[dict[str, int]] = {}
MAX_REMEMBERED_URLS: Final = 16

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
    asyncpg.ReadOnlySQLTransactionError,  # a standby that is not promoted yet
    asyncpg.InvalidCachedStatementError,  # a migration has changed a table of the statement
    OSError,
    TimeoutError,
)
# After one of these errors, the next server of a URL may accept the connection.
_NEXT_SERVER_ERRORS: Final = (
    CertificateFault,
    OSError,
    asyncpg.PostgresConnectionError,
    asyncpg.OperatorInterventionError,  # a server that starts or stops
    asyncpg.InternalClientError,  # a standby instead of the primary
)


@contextmanager
def translate_db_errors() -> Iterator[None]:
    """Raise `DatabaseUnavailable` or `WriteConflict` for every error that a retry may avoid.

    A cancellation of the calling task passes, even if an error of the connection hides it.
    """
    try:
        yield
    except CertificateFault as error:
        raise DatabaseUnavailable(str(error), code=BAD_CERTIFICATE) from error
    except _TRANSIENT_ERRORS as error:
        raise_if_cancelled(error)
        raise DatabaseUnavailable(str(error) or type(error).__name__) from error
    except asyncpg.UniqueViolationError as error:
        raise WriteConflict(str(error)) from error


async def connect(
    url: str,
    *,
    timeout: float = CONNECT_TIMEOUT,  # noqa: ASYNC109  # passed to asyncpg
    **settings: Any,  # noqa: ANN401  # of asyncpg
) -> asyncpg.Connection:
    """Open a connection, as each pool and the migration do.

    Each call reads the files of the certificates again, so their rotation needs no restart.
    Each server of the URL has `timeout` seconds, so that a silent one does not hide the others.
    With `pooler=transaction`, the connection prepares no statement for later and sets only what
    a pooler accepts. The roles then have the other settings (`role_defaults`).
    Raise `CertificateFault` if a certificate prevents the connection, and the errors of asyncpg.
    """
    address = read_database_url(url)
    settings |= {"ssl": address.ssl(), "timeout": timeout}
    if address.pooler is Pooler.TRANSACTION:
        wanted = settings.get("server_settings", {})
        allowed = {name: wanted[name] for name in POOLED_SETTINGS if name in wanted}
        settings |= {"server_settings": allowed, "statement_cache_size": 0}
    if len(address.hosts) == 1:
        return await _connect_to_server(address, 0, address.session_targets[-1], settings=settings)
    errors: list[Exception] = []
    for target in address.session_targets:
        for index in _servers_in_order(url, len(address.hosts)):
            try:
                connection = await _connect_to_server(address, index, target, settings=settings)
            except _NEXT_SERVER_ERRORS as error:
                errors.append(error)
            else:
                _remember_server(url, index)
                return connection
    raise next((each for each in errors if isinstance(each, CertificateFault)), errors[-1])


def refuse_pooler(url: str, reader: str) -> None:
    """Raise `InvalidInput` if the URL leads to a pooler, because `reader` needs one session."""
    if read_database_url(url).pooler is not Pooler.NONE:
        reason = f"{reader} must connect to PostgreSQL directly, without the parameter pooler."
        raise InvalidInput(reason, field=FIELD)


async def _connect_to_server(
    address: DatabaseUrl, index: int, target: SessionTarget, *, settings: Mapping[str, Any]
) -> asyncpg.Connection:
    place: dict[str, Any] = {}
    if len(address.hosts) > 1:
        place = {"host": address.hosts[index], "port": address.ports[index]}
    try:
        return await asyncpg.connect(
            address.dsn, target_session_attrs=target.value, **place, **settings
        )
    except OSError as error:
        fault = await certificate_fault(error, address.servers[index])
        if fault is not None:
            raise fault from error
        raise


def _servers_in_order(url: str, count: int) -> list[int]:
    """Return the server of the last connection first, because another may be silent for days."""
    last = _LAST_SERVERS.get(url, 0)
    return [last, *(index for index in range(count) if index != last)]


def _remember_server(url: str, index: int) -> None:
    if len(_LAST_SERVERS) >= MAX_REMEMBERED_URLS:
        _LAST_SERVERS.clear()
    _LAST_SERVERS[url] = index


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
    settings = {**SESSION_SETTINGS, **(HOT_PATH_SETTINGS if hot else {}), "application_name": name}
    pool = _Pool(
        url,
        bounds or PoolBounds(),
        on_connect,
        timeout=CONNECT_TIMEOUT,
        command_timeout=COMMAND_TIMEOUT,
        max_cached_statement_lifetime=STATEMENT_LIFETIME,
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


def role_defaults(database: str) -> list[str]:
    """Return the statements that give the roles the settings which a pooler does not forward.

    The pool of intake reads nothing but the time, and its cold reads need other plans.
    """
    settings = {name: text for name, text in SESSION_SETTINGS.items() if name not in _NOT_OF_ROLES}
    return [
        f"ALTER ROLE {role} IN DATABASE {database} SET {name} = '{text}'"
        for role in ROLES
        if role != AUDITOR
        for name, text in (settings | (HOT_PATH_SETTINGS if role != INTAKE else {})).items()
    ]


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
    connection: asyncpg.Connection, statement: ClauseElement
) -> list[Mapping[str, Any]]:
    """Return the rows of a Core statement."""
    text, parameters = compile_statement(statement)
    rows: list[Mapping[str, Any]] = await connection.fetch(text, *parameters)
    return rows


async def fetch_page(
    connection: asyncpg.Connection, statement: Select[Any], limit: int
) -> tuple[list[Mapping[str, Any]], bool]:
    """Return at most `limit` rows, and whether the statement has more rows."""
    rows = await fetch_rows(connection, statement.limit(limit + 1))
    return rows[:limit], len(rows) > limit


async def database_time(pool: asyncpg.Pool) -> datetime:
    with translate_db_errors():
        now: Any = await pool.fetchval(DATABASE_TIME)
    assert isinstance(now, datetime)  # noqa: S101  # for the type checker
    return now
