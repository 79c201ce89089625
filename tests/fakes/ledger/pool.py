"""A pool like that of asyncpg, which answers the statements of the ledger from memory."""

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final, TypeAlias

import asyncpg
from tests.fakes.ledger.store import Blocked, Store, Transaction

LOCK_TIMEOUT: Final = 3.0  # seconds, the same as in `storage/engine.py`

Record: TypeAlias = dict[str, Any]
Answer: TypeAlias = Callable[..., Iterable[Record] | None]

ANSWERS: dict[str, Answer] = {}


_PARTITIONS: Final = re.compile(r"\(SELECT \* FROM runs_.*?\) AS runs")
_PARTITION: Final = re.compile(r"\b(runs|attempts)_\d{8}\b")


def without_partitions(statement: str) -> str:
    """Return the statement on all partitions, because the tables in memory have none."""
    return _PARTITION.sub(r"\1", _PARTITIONS.sub("runs", statement))


def answers(statement: str) -> Callable[[Answer], Answer]:
    """Register the effect of a statement on a transaction.

    The pool identifies a statement by its text, so the functions of `storage/runs` run unchanged.
    A changed text that no answer has raises `KeyError`.
    """

    def register(answer: Answer) -> Answer:
        ANSWERS[statement] = answer
        return answer

    return register


# A simulation delays and breaks the calls between a client and the database.
Effect: TypeAlias = Callable[[], Coroutine[Any, Any, Any]]
Port: TypeAlias = Callable[[str, Effect], Coroutine[Any, Any, Any]]


async def _call(_: str, effect: Effect) -> Any:
    return await effect()


class _Statements:
    """The methods that a pool and a connection share."""

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
    """A connection whose statements run in the open transaction or each in its own."""

    def __init__(self, store: Store, port: Port, owner: object) -> None:
        self._store = store
        self._port = port
        self._owner = owner
        self._transaction: Transaction | None = None

    async def _run(self, statement: str, args: Sequence[Any]) -> list[Record]:
        current, statement = self._transaction, without_partitions(statement)

        async def run_alone() -> list[Record]:
            transaction = Transaction(self._store, self._owner)
            try:
                found = await _answer(transaction, statement, args)
                transaction.commit()
            finally:
                transaction.abort()
            return found

        if current is None:
            return list(await self._port(statement, run_alone))
        try:
            return list(await self._port(statement, lambda: _answer(current, statement, args)))
        except asyncpg.PostgresConnectionError:
            current.abort()  # PostgreSQL aborts the transaction of a lost connection
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
    """A pool of connections. A crash of `owner` aborts the transactions of the owner."""

    def __init__(self, store: Store, port: Port = _call, owner: object = None) -> None:
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
    """Run the whole statement at one time. Start again after each wait for a row lock."""
    while True:
        transaction.use()
        written = dict(transaction.written)
        try:
            return list(ANSWERS[statement](transaction, *args) or ())
        except Blocked as blocked:
            transaction.written = written
            await _wait_for(blocked.by)


async def _wait_for(holder: Transaction) -> None:
    try:
        await holder.wait_for_end(LOCK_TIMEOUT)
    except TimeoutError:
        if not holder.is_abandoned:
            raise asyncpg.LockNotAvailableError("canceling statement due to lock timeout") from None
        holder.abort()
    await asyncio.sleep(0)
