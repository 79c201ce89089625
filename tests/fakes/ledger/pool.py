"""A pool of the driver's shape that answers the ledger's very statements from memory."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final, TypeAlias

import asyncpg
from tests.fakes.ledger.store import Blocked, Store, Transaction

LOCK_TIMEOUT: Final = 3.0  # seconds, as in kernel/db/engine.py

Record: TypeAlias = dict[str, Any]
Answer: TypeAlias = Callable[..., Iterable[Record] | None]

ANSWERS: dict[str, Answer] = {}


def answers(statement: str) -> Callable[[Answer], Answer]:
    """Registers what a statement does to a transaction. The port is the statement's text: so the
    functions of `kernel/db` run as they are, and one that is changed is missed at once."""

    def register(answer: Answer) -> Answer:
        ANSWERS[statement] = answer
        return answer

    return register


# Between a client and the database: where a simulation delays, breaks and crashes.
Effect: TypeAlias = Callable[[], Coroutine[Any, Any, Any]]
Port: TypeAlias = Callable[[str, Effect], Coroutine[Any, Any, Any]]


async def _directly(_: str, effect: Effect) -> Any:
    return await effect()


class _Statements:
    """What pools and connections share."""

    async def _run(self, statement: str, args: Sequence[Any]) -> list[Record]:
        raise NotImplementedError

    async def fetch(self, statement: str, *args: Any) -> list[Record]:
        return await self._run(statement, args)

    async def execute(self, statement: str, *args: Any) -> None:
        await self._run(statement, args)

    async def executemany(self, statement: str, rows: Iterable[Sequence[Any]]) -> None:
        for args in rows:
            await self._run(statement, args)

    async def fetchrow(self, statement: str, *args: Any) -> Record | None:
        rows = await self._run(statement, args)
        return rows[0] if rows else None

    async def fetchval(self, statement: str, *args: Any) -> Any:
        row = await self.fetchrow(statement, *args)
        return None if row is None else next(iter(row.values()))


class Connection(_Statements):
    def __init__(self, store: Store, port: Port, owner: object) -> None:
        self._store = store
        self._port = port
        self._owner = owner
        self._transaction: Transaction | None = None

    async def _run(self, statement: str, args: Sequence[Any]) -> list[Record]:
        within = self._transaction

        async def alone() -> list[Record]:
            transaction = Transaction(self._store, self._owner)
            try:
                found = await _answer(transaction, statement, args)
                transaction.commit()
            finally:
                transaction.abort()
            return found

        if within is None:
            return list(await self._port(statement, alone))
        try:
            return list(await self._port(statement, lambda: _answer(within, statement, args)))
        except asyncpg.PostgresConnectionError:
            within.abort()  # it falls with its connection
            raise

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[None]:
        transaction = self._transaction = Transaction(self._store, self._owner)

        async def commit() -> None:
            transaction.commit()

        try:
            yield
            await self._port("COMMIT", commit)
        finally:
            transaction.abort()
            self._transaction = None


class Pool(_Statements):
    """`owner`: whose transactions fall together when it crashes."""

    def __init__(self, store: Store, port: Port = _directly, owner: object = None) -> None:
        self.store = store
        self._port = port
        self._owner = owner

    async def _run(self, statement: str, args: Sequence[Any]) -> list[Record]:
        return await self._connection().fetch(statement, *args)

    @asynccontextmanager
    async def acquire(self) -> AsyncIterator[Connection]:
        yield self._connection()

    def _connection(self) -> Connection:
        return Connection(self.store, self._port, self._owner)


async def _answer(transaction: Transaction, statement: str, args: Sequence[Any]) -> list[Record]:
    """All of a statement at one moment; where it meets a lock it waits, and looks again."""
    while True:
        transaction.use()
        written = dict(transaction.written)
        try:
            return list(ANSWERS[statement](transaction, *args) or ())
        except Blocked as blocked:
            transaction.written = written
            await _wait(blocked.by)


async def _wait(holder: Transaction) -> None:
    try:
        await holder.over(LOCK_TIMEOUT)
    except TimeoutError:
        if not holder.is_forgotten:
            raise asyncpg.LockNotAvailableError("canceling statement due to lock timeout") from None
        holder.abort()
    await asyncio.sleep(0)
