"""Statements on the partitions of a day: what they lock, what they find, and the rights."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, cast
from uuid import UUID

import asyncpg
import pytest
from tests.contract.ledger_rows import (
    HOLDER,
    LEASE,
    NOW,
    SEQ,
    VERSION,
    Row,
    completion_of,
    insert_rows_as,
)
from tests.rig.servers import as_role

from harebell.contract.ids import RunKey
from harebell.contract.types import EARLIEST
from harebell.domain.run_states import RunState, fencing_token
from harebell.storage.engine import open_pool
from harebell.storage.runs import claims, completion, recovery
from harebell.storage.runs.partitions import partition_at
from harebell.storage.runs.recovery import SearchScope

pytestmark = pytest.mark.postgres

DAY = timedelta(days=1)
LONG_AGO = 400  # days, before the first day of the ledger
TODAY = f"{NOW:%Y%m%d}"
STAGED, RUNNING = Row(RunState.STAGED), Row(RunState.RUNNING, 1, has_expired_lease=True)
_LOCKED = """
SELECT relation::regclass::text FROM pg_locks JOIN pg_class ON pg_class.oid = relation
WHERE pid = pg_backend_pid() AND relkind IN ('r', 'p')
    AND relation::regclass::text ~ '^(runs|attempts)'
"""
_RIGHTS = """
SELECT relname, array_agg(privilege ORDER BY privilege)
FROM pg_class, aclexplode(relacl) AS acl,
    concat_ws(' ', acl.grantee::regrole, acl.privilege_type) AS privilege
WHERE relname ~ $1 AND acl.grantee <> relowner GROUP BY relname
"""

_NEEDED = {
    "runs": ["harebell_executor SELECT", "harebell_executor UPDATE", "harebell_ticker SELECT"],
    "attempts": ["harebell_executor INSERT"],
}


@dataclass
class OneConnection:
    """A pool whose statements run in one transaction, which keeps their locks."""

    connection: asyncpg.Connection

    async def fetch(self, statement: str, *parameters: object) -> list[asyncpg.Record]:
        rows: list[asyncpg.Record] = await self.connection.fetch(statement, *parameters)
        return rows

    async def locked(self) -> set[str]:
        """Return the locked partitions. A change of a row also reads the bounds in the parent."""
        locked = {row[0] for row in await self.connection.fetch(_LOCKED)}
        return locked - {"runs", "attempts"}


@pytest.fixture
async def owner(database_url: str) -> AsyncIterator[asyncpg.Pool]:
    async with asyncpg.create_pool(database_url, min_size=1, max_size=1) as pool:
        yield pool


@pytest.fixture
async def executor(database_url: str) -> AsyncIterator[asyncpg.Pool]:
    async with open_pool(as_role(database_url, "executor"), name="test") as pool:
        yield pool


@pytest.fixture
async def ticker(database_url: str) -> AsyncIterator[asyncpg.Pool]:
    async with open_pool(as_role(database_url, "ticker"), name="test") as pool:
        yield pool


@asynccontextmanager
async def one_transaction(pool: asyncpg.Pool) -> AsyncIterator[OneConnection]:
    async with pool.acquire() as connection, connection.transaction():
        yield OneConnection(connection)


def key_at(days_ago: int, number: int = 0) -> RunKey:
    return RunKey(NOW - days_ago * DAY, UUID(int=number))


def claim_key(key: RunKey) -> claims.ClaimKey:
    return claims.ClaimKey(
        key=key, seq=SEQ, version=VERSION, override=None, lease=LEASE, due_at=NOW
    )


async def test_hot_statements_lock_only_the_partitions_of_their_day(
    owner: asyncpg.Pool, executor: asyncpg.Pool
) -> None:
    key = key_at(0)
    await insert_rows_as(owner, {key: STAGED})

    async with one_transaction(executor) as one:
        claimed = await claims.claim(cast("Any", one), [claim_key(key)], HOLDER)
        renewed = await claims.renew(cast("Any", one), list(claimed.values()))
        before = await one.locked()
        token = fencing_token(1, SEQ + 1)
        done = completion_of(key, RunState.SUCCEEDED, token=token)
        completed = await completion.complete_free(cast("Any", one), [done])
        after = await one.locked()

    assert (set(claimed), set(renewed), set(completed)) == ({key}, {key}, {key})
    assert before == {f"runs_{TODAY}"}
    assert after == {f"runs_{TODAY}", f"attempts_{TODAY}"}


@pytest.mark.parametrize("days_ago", [(0, 1), (LONG_AGO,), (LONG_AGO, 0)])
async def test_rows_of_several_days_or_of_no_day_are_claimed_and_completed(
    owner: asyncpg.Pool, executor: asyncpg.Pool, days_ago: tuple[int, ...]
) -> None:
    keys = [key_at(days, number) for number, days in enumerate(days_ago)]
    await insert_rows_as(owner, dict.fromkeys(keys, STAGED))

    claimed = await claims.claim(executor, [claim_key(key) for key in keys], HOLDER)
    renewed = await claims.renew(executor, list(claimed.values()))
    completed = await completion.complete_free(
        executor,
        [
            completion_of(claim.key, RunState.SUCCEEDED, token=claim.token)
            for claim in claimed.values()
        ],
    )

    assert set(claimed) == set(renewed) == set(completed) == set(keys)


async def test_search_locks_and_finds_only_the_partitions_of_its_scope(
    owner: asyncpg.Pool, ticker: asyncpg.Pool
) -> None:
    await insert_rows_as(owner, {key_at(0): RUNNING, key_at(5): RUNNING})
    scope = SearchScope(EARLIEST, frozenset({f"runs_{TODAY}", partition_at(NOW + DAY)}))

    async with one_transaction(ticker) as one:
        holders = await recovery.find_lease_holders(cast("Any", one), scope)
        lost = await recovery.find_lost_tickets(cast("Any", one), scope)
        locked = await one.locked()

    assert [each.name for each in holders] == [HOLDER]
    assert lost == []
    assert locked == scope.partitions


async def test_search_visits_its_partitions_or_all_of_them_if_one_is_missing(
    owner: asyncpg.Pool, ticker: asyncpg.Pool
) -> None:
    await insert_rows_as(owner, {key_at(5): RUNNING, key_at(LONG_AGO): RUNNING})
    first_due = {
        each.partition: each.first_due_at for each in await recovery.find_open_days(ticker)
    }
    before, old = partition_at(NOW - LONG_AGO * DAY), partition_at(NOW - 5 * DAY)

    async def finds(*partitions: str) -> bool:
        scope = SearchScope(EARLIEST, frozenset(partitions))
        return bool(await recovery.find_lease_holders(ticker, scope))

    assert first_due == {before: NOW - LONG_AGO * DAY, old: NOW - 5 * DAY}
    assert not await finds(f"runs_{TODAY}")
    assert await finds(f"runs_{TODAY}", old)
    assert await finds(f"runs_{TODAY}", before)


async def test_each_partition_has_the_rights_that_its_statements_need(owner: asyncpg.Pool) -> None:
    later = (NOW + 100 * DAY).date()
    await owner.execute("SELECT harebell_ensure_partitions($1, $1)", later)
    earlier = (NOW - 3 * DAY).date()
    await owner.execute("SELECT harebell_retire_day($1, true)", earlier)

    for table, needed in _NEEDED.items():
        rights = {row[0]: row[1] for row in await owner.fetch(_RIGHTS, rf"^{table}_\d+$")}
        assert {f"{table}_{later:%Y%m%d}", f"{table}_{earlier:%Y%m%d}"} < set(rights)
        assert {name for name, each in rights.items() if each != needed} == set()
    retired = {row[0]: row[1] for row in await owner.fetch(_RIGHTS, "^retired_")}
    assert set(map(tuple, retired.values())) == {("harebell_ticker SELECT",)}
    assert len(retired) == 2
