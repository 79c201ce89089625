"""Plans of the ledger's hot statements on a new day's partition, which has no statistics yet.

A planner that takes it for empty, or believes that none of its rows is running, scans it once for
every row of a batch: a statement of 9 ms takes over a second, and every run of that day is late.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, cast
from uuid import UUID

import asyncpg
import orjson
import pytest

from harebell.contract.identity import RunKey
from harebell.kernel.db.engine import open_pool
from harebell.kernel.db.ledger import claims, endings, staging, sweeps, turns
from harebell.kernel.ledger import SUCCEEDED, Ending, Reason, RunState
from harebell.ticker import backlog, store

pytestmark = pytest.mark.postgres

ROWS = 10_000
TODAY = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
NEW_DAY = TODAY + timedelta(days=1)
KEYS = [RunKey(NEW_DAY + timedelta(seconds=k), UUID(int=k)) for k in range(500)]
SCHEDULES = [key.schedule_id for key in KEYS]
REPLACED = (RunState.CANCELLED, Reason.REPLACED)

_RUNS = """
INSERT INTO runs (scheduled_for, schedule_id, tenant, version, seq, pool, lane, priority, state,
                  due_at, staged_at, lease_holder, lease_until, lease_seconds)
SELECT $1::timestamptz + make_interval(secs => k % 80000), lpad(to_hex(k), 32, '0')::uuid, 'acme',
       1, 1, 'default', 'normal', 5, CASE k % 2 WHEN 0 THEN 'staged' ELSE 'running' END,
       $1::timestamptz + make_interval(secs => k % 80000), now(), 'executor-1', now(), 15
FROM generate_series(0, $2 - 1) AS k
"""
_STATES = """
INSERT INTO schedule_state (schedule_id, version, state, next_at, changed_at, planned_to,
                            dispatched, open_runs)
SELECT lpad(to_hex(k), 32, '0')::uuid, 1, 'active', now() + make_interval(secs => k), now(), now(),
       0, '{}'
FROM generate_series(0, $1 - 1) AS k
"""


@dataclass
class Explainer:
    """Stands where a pool or a connection would; keeps the plans of what it is given to do."""

    connection: asyncpg.Connection
    nodes: list[dict[str, Any]] = field(default_factory=list)

    async def fetch(self, statement: str, *given: object) -> list[Any]:
        """Prepared as the driver would, and as generic as the settings make it."""
        await self.connection.execute(f"PREPARE asked AS {statement}")
        nothing = f"({', '.join(['NULL'] * len(given))})" if given else ""
        told = await self.connection.fetchval(f"EXPLAIN (FORMAT JSON) EXECUTE asked{nothing}")
        await self.connection.execute("DEALLOCATE asked")
        self.nodes += walk(orjson.loads(told)[0]["Plan"])
        return []

    execute = fetch


def walk(node: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield node
    for child in node.get("Plans", ()):
        yield from walk(child)


@asynccontextmanager
async def new_day(database_url: str) -> AsyncIterator[Explainer]:
    """The settings are those of the services' own connections."""
    async with open_pool(database_url, name="test") as pool, pool.acquire() as connection:
        for table in (f"runs_{NEW_DAY:%Y%m%d}", "schedule_state"):
            await connection.execute(f"ALTER TABLE {table} SET (autovacuum_enabled = off)")
        await connection.execute(_RUNS, NEW_DAY, ROWS)
        await connection.execute(_STATES, ROWS)
        yield Explainer(connection)


def wanted() -> list[claims.Wanted]:
    return [claims.Wanted(key, 1, 1, None, 15.0) for key in KEYS]


def held() -> list[claims.Held]:
    return [claims.Held(key, 1, NEW_DAY) for key in KEYS]


def endings_of(state: RunState) -> list[Ending]:
    return [Ending(key, 1, state, SUCCEEDED, NEW_DAY, NEW_DAY) for key in KEYS]


class NoVersions:
    async def of(self, *_: object) -> dict[object, object]:
        return {}


Statement = Callable[[Any], Awaitable[object]]
STATEMENTS: dict[str, Statement] = {
    "claim": lambda at: claims.claim(at, wanted(), "executor-1"),
    "explain a refused claim": lambda at: claims.explain(at, wanted(), "executor-1"),
    "renew": lambda at: claims.renew(at, held()),
    "drop": lambda at: claims.drop(at, held()),
    "release": lambda at: claims.release(at, held()),
    "settle": lambda at: endings.end(at, endings_of(RunState.SUCCEEDED)),
    "read a settle back": lambda at: endings.stand(at, endings_of(RunState.SUCCEEDED)),
    "cancel": lambda at: staging.cancel(at, dict.fromkeys(KEYS, Reason.CANCELLED)),
    "ask to stop": lambda at: staging.request_stop(at, dict.fromkeys(KEYS, Reason.CANCELLED)),
    "sweep of lost tickets": sweeps.lost,
    "backlog": backlog.due,
    "expire": lambda at: sweeps.expire(at, KEYS),
    "stage again": lambda at: sweeps.stage_again(at, KEYS),
    "holders": sweeps.holders,
    "sweep of lapsed leases": lambda at: sweeps.lapsed(at, ["executor-1"], by_time=True),
    "what stands": lambda at: turns.standing(at, SCHEDULES),
    "what stands, locked": lambda at: turns.standing_locked(at, KEYS),
    "take turns": lambda at: turns.take(at, dict.fromkeys(KEYS, turns.Role.HOLDER)),
    "hold back": lambda at: turns.hold_back(at, KEYS),
    "give up": lambda at: turns.give_up(at, dict.fromkeys(KEYS, REPLACED)),
    "wake": lambda at: turns.wake(at, KEYS),
    "forget turns": lambda at: turns.forget(at, SCHEDULES),
    "stuck schedules": turns.stuck,
    "what is due": lambda at: store.load_due(at, cast("Any", NoVersions()), NEW_DAY, 1_000),
}


@pytest.mark.parametrize("statement", STATEMENTS.values(), ids=STATEMENTS)
async def test_no_hot_statement_scans_or_hashes_a_partition_that_was_never_analysed(
    statement: Statement, database_url: str
) -> None:
    async with new_day(database_url) as explainer:
        await statement(explainer)

    kinds = {node["Node Type"] for node in explainer.nodes}
    scanned = {n["Relation Name"] for n in explainer.nodes if n["Node Type"] == "Seq Scan"}
    assert kinds, "nothing was asked of the database"
    assert not kinds & {"Hash Join", "Merge Join"}
    assert not scanned
