"""Tables in memory with the rules of PostgreSQL: READ COMMITTED and row locks."""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator
from datetime import datetime, timedelta
from typing import Any, Final, TypeAlias

import asyncpg

# The same time as `idle_in_transaction_session_timeout` in `storage/engine.py`.
IDLE_TIMEOUT: Final = timedelta(seconds=10)

RowId: TypeAlias = tuple[str, Hashable]  # a table and a primary key
OnCommit: TypeAlias = Callable[["Transaction"], None]  # called before each commit


class Blocked(Exception):
    """The error of a statement that needs a row lock of another transaction."""

    def __init__(self, by: "Transaction") -> None:
        super().__init__()
        self.by = by


class Store:
    """The committed rows and the row locks. `now` is the clock of the database."""

    def __init__(self, now: Callable[[], datetime], on_commit: OnCommit = lambda _: None) -> None:
        self.now = now
        self.on_commit = on_commit
        self.started_at = now()
        self.epoch = 1  # a promotion increases it
        self.tables: defaultdict[str, dict[Any, Any]] = defaultdict(dict)
        self.locks: dict[RowId, Transaction] = {}
        self.open: dict[Transaction, None] = {}  # in the order of their starts

    def disconnect(self, owner: object) -> None:
        """Abort the open transactions of a client that has crashed."""
        for transaction in [each for each in self.open if each.owner is owner]:
            transaction.abort()


class Transaction:
    """A transaction that reads committed rows and its own writes."""

    def __init__(self, store: Store, owner: object) -> None:
        self.store = store
        self.owner = owner
        self.now = self.used_at = store.now()
        self.written: dict[RowId, Any] = {}  # None: deleted
        self.is_over = False
        self._locked: list[RowId] = []
        self._waiters: list[asyncio.Future[None]] = []
        store.open[self] = None

    def get(self, table: str, key: Hashable) -> Any:
        """Return the row, or None if the table has no such row."""
        row_id = (table, key)
        if row_id in self.written:
            return self.written[row_id]
        return self.store.tables[table].get(key)

    def rows(self, table: str) -> Iterator[Any]:
        written = {key: row for (name, key), row in self.written.items() if name == table}
        for key, committed in self.store.tables[table].items():
            row = written.pop(key, committed) if written else committed
            if row is not None:
                yield row
        yield from (row for row in written.values() if row is not None)

    def put(self, table: str, key: Hashable, row: Any) -> None:
        self.lock(table, key)
        self.written[table, key] = row

    def lock(self, table: str, key: Hashable) -> None:
        """Lock the row until the transaction ends.

        Raise `Blocked`, after which the statement starts again when the other transaction ends.
        """
        if not self.try_lock(table, key):
            raise Blocked(self.store.locks[table, key])

    def try_lock(self, table: str, key: Hashable) -> bool:
        holder = self.store.locks.get((table, key))
        if holder is None:
            self.store.locks[table, key] = self
            self._locked.append((table, key))
        return holder is None or holder is self

    def use(self) -> None:
        """Raise if the transaction has been idle for too long or its client has crashed."""
        now = self.store.now()
        if not self.is_over and now - self.used_at > IDLE_TIMEOUT:
            self.abort()
        if self.is_over:
            raise asyncpg.ConnectionDoesNotExistError("The transaction has ended.")
        self.used_at = now

    @property
    def is_abandoned(self) -> bool:
        return self.store.now() - self.used_at > IDLE_TIMEOUT

    def commit(self) -> None:
        self.use()
        self.store.on_commit(self)
        for (table, key), row in self.written.items():
            if row is None:
                self.store.tables[table].pop(key, None)
            else:
                self.store.tables[table][key] = row
        self._end()

    def abort(self) -> None:
        if not self.is_over:
            self._end()

    def _end(self) -> None:
        self.is_over = True
        del self.store.open[self]
        for row_id in self._locked:
            del self.store.locks[row_id]
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)

    async def wait_for_end(self, seconds: float) -> None:
        """Raise `TimeoutError` if the transaction does not end in time."""
        waiter = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        await asyncio.wait_for(waiter, seconds)
