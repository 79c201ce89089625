"""Database errors that a retry may avoid become `DatabaseUnavailable`."""

import asyncpg
import pytest
from sqlalchemy.exc import DBAPIError

from harebell.contract.errors import DatabaseUnavailable
from harebell.storage.engine import translate_db_errors
from harebell.storage.migrate import errors_of_asyncpg

TRANSIENT = [
    asyncpg.ConnectionDoesNotExistError("connection was closed in the middle of operation"),
    asyncpg.CannotConnectNowError("the database system is starting up"),
    asyncpg.AdminShutdownError("terminating connection due to administrator command"),
    asyncpg.CrashShutdownError("terminating connection because of crash"),
    asyncpg.QueryCanceledError("canceling statement due to statement timeout"),
    asyncpg.LockNotAvailableError("canceling statement due to lock timeout"),
    asyncpg.DeadlockDetectedError("deadlock detected"),
    asyncpg.TooManyConnectionsError("sorry, too many clients already"),
    asyncpg.InterfaceError("connection is closed"),
    asyncpg.InvalidCachedStatementError("cached statement plan is invalid"),
    # asyncpg raises this error for a connection that is being closed
    asyncpg.InternalClientError("cannot switch to state 12; another operation is in progress"),
    ConnectionResetError(104, "Connection reset by peer"),
    TimeoutError(),
]
PERMANENT = [
    asyncpg.UndefinedColumnError("column does not exist"),
    asyncpg.InsufficientPrivilegeError("permission denied"),
    asyncpg.CharacterNotInRepertoireError("invalid byte sequence"),
    ValueError("an error of Harebell"),
]


def name(error: Exception) -> str:
    return type(error).__name__


@pytest.mark.parametrize("error", TRANSIENT, ids=name)
def test_transient_error_becomes_database_unavailable(error: Exception) -> None:
    with pytest.raises(DatabaseUnavailable) as caught, translate_db_errors():
        raise error

    assert caught.value.__cause__ is error
    assert caught.value.reason


@pytest.mark.parametrize("error", TRANSIENT, ids=name)
def test_transient_error_in_the_wrapper_of_sqlalchemy_becomes_database_unavailable(
    error: Exception,
) -> None:
    wrapper = Exception("the wrapper of the dialect")
    wrapper.__cause__ = error

    with pytest.raises(DatabaseUnavailable), translate_db_errors(), errors_of_asyncpg():
        raise DBAPIError("SELECT 1", (), wrapper)


@pytest.mark.parametrize("error", PERMANENT, ids=name)
def test_permanent_error_is_not_translated(error: Exception) -> None:
    with pytest.raises(type(error)), translate_db_errors():
        raise error
