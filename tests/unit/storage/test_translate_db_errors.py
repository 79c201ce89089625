"""Which of the database's faults may be over at the next try."""

import asyncpg
import pytest
from sqlalchemy.exc import DBAPIError

from harebell.contract.errors import DatabaseUnavailable
from harebell.storage.engine import translate_db_errors

PASSING = [
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
    # a connection that is being ended, met in the middle of its end
    asyncpg.InternalClientError("cannot switch to state 12; another operation is in progress"),
    ConnectionResetError(104, "Connection reset by peer"),
    TimeoutError(),
]
LASTING = [
    asyncpg.UndefinedColumnError("column does not exist"),
    asyncpg.InsufficientPrivilegeError("permission denied"),
    asyncpg.CharacterNotInRepertoireError("invalid byte sequence"),
    ValueError("ours"),
]


def name(error: Exception) -> str:
    return type(error).__name__


@pytest.mark.parametrize("error", PASSING, ids=name)
def test_a_fault_that_may_pass_is_a_database_that_is_away(error: Exception) -> None:
    with pytest.raises(DatabaseUnavailable) as told, translate_db_errors():
        raise error

    assert told.value.__cause__ is error
    assert told.value.reason


@pytest.mark.parametrize("error", PASSING, ids=name)
def test_so_it_is_in_the_wrapping_of_the_slower_driver(error: Exception) -> None:
    wrapper = Exception("the dialect's")
    wrapper.__cause__ = error

    with pytest.raises(DatabaseUnavailable), translate_db_errors():
        raise DBAPIError("SELECT 1", (), wrapper)


@pytest.mark.parametrize("error", LASTING, ids=name)
def test_a_fault_that_would_come_again_stays_what_it_is(error: Exception) -> None:
    with pytest.raises(type(error)), translate_db_errors():
        raise error
