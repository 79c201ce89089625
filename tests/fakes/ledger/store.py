"""Tables in memory with PostgreSQL's rules: uncommitted rows unseen, written rows locked."""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator
from datetime import datetime, timedelta
from typing import Any, Final, TypeAlias

import asyncpg

IDLE: Final = timedelta(seconds=10)  # of a transaction before it falls, as in kernel/db/engine.py

Place: TypeAlias = tuple[str, Hashable]  # a table and a primary key
Watch: TypeAlias = Callable[["Transaction"], None]  # told of every commit, just before it


class Blocked(Exception):
    """What a statement would lock, another transaction has locked."""

    def __init__(self, by: "Transaction") -> None:
        super().__init__()
        self.by = by


class Store:
    """What is committed, and who has what locked. `now` is the database's clock."""

    def __init__(self, now: Callable[[], datetime], watch: Watch = lambda _: None) -> None:
        self.now = now
        self.on_commit = watch
        self.started_at = now()
        self.tables: defaultdict[str, dict[Any, Any]] = defaultdict(dict)
        self.locks: dict[Place, Transaction] = {}
        self.open: dict[Transaction, None] = {}  # in order of their beginnings

    def disconnect(self, owner: object) -> None:
        """A client is gone: what it had not committed never was."""
        for transaction in [each for each in self.open if each.owner is owner]:
            transaction.abort()


class Transaction:
    """Reads see what is committed and what it wrote itself (READ COMMITTED)."""

    def __init__(self, store: Store, owner: object) -> None:
        self.store = store
        self.owner = owner
        self.now = self.used_at = store.now()
        self.written: dict[Place, Any] = {}  # None: deleted
        self.is_over = False
        self._locked: list[Place] = []
        self._waiting: list[asyncio.Future[None]] = []
        store.open[self] = None

    def get(self, table: str, key: Hashable) -> Any:
        """None when there is no such row."""
        place = (table, key)
        return self.written[place] if place in self.written else self.store.tables[table].get(key)

    def rows(self, table: str) -> Iterator[Any]:
        written = {key: row for (of, key), row in self.written.items() if of == table}
        for key, committed in self.store.tables[table].items():
            row = written.pop(key, committed) if written else committed
            if row is not None:
                yield row
        yield from (row for row in written.values() if row is not None)

    def put(self, table: str, key: Hashable, row: Any) -> None:
        self.lock(table, key)
        self.written[table, key] = row

    def lock(self, table: str, key: Hashable) -> None:
        """Until its end. Raises `Blocked`: the statement is begun anew when the other is over."""
        if not self.try_lock(table, key):
            raise Blocked(self.store.locks[table, key])

    def try_lock(self, table: str, key: Hashable) -> bool:
        holder = self.store.locks.get((table, key))
        if holder is None:
            self.store.locks[table, key] = self
            self._locked.append((table, key))
        return holder is None or holder is self

    def use(self) -> None:
        """Raises when it has fallen by itself, or with its connection."""
        now = self.store.now()
        if not self.is_over and now - self.used_at > IDLE:
            self.abort()
        if self.is_over:
            raise asyncpg.ConnectionDoesNotExistError("the transaction is gone")
        self.used_at = now

    @property
    def is_forgotten(self) -> bool:
        return self.store.now() - self.used_at > IDLE

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
        for place in self._locked:
            del self.store.locks[place]
        for waiter in self._waiting:
            if not waiter.done():
                waiter.set_result(None)

    async def over(self, seconds: float) -> None:
        """Raises `TimeoutError` when it is not over by then."""
        waiter = asyncio.get_running_loop().create_future()
        self._waiting.append(waiter)
        await asyncio.wait_for(waiter, seconds)
