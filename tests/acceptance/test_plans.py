"""Plans of the frequent statements on the partition of a new day, which has no statistics.

A planner that assumes an empty partition scans the partition once for each row of a batch.
A planner that assumes no running row does the same.
Then a statement of 9 ms takes more than a second, and every run of that day is late.
"""

import pytest
from tests.acceptance.plans import NEW_DAY, STATEMENTS, Explainer

from harebell.storage.engine import open_pool

pytestmark = pytest.mark.postgres

ROWS = 10_000

_RUNS = """
INSERT INTO runs (scheduled_for, schedule_id, tenant, version, seq, pool, lane, priority, state,
                  due_at, staged_at, lease_holder, lease_until, lease_seconds)
SELECT $1::timestamptz + make_interval(secs => k % 80000), lpad(to_hex(k), 32, '0')::uuid, 'acme',
       1, 1, 'default', 'normal', 5, CASE k % 2 WHEN 0 THEN 'staged' ELSE 'running' END,
       $1::timestamptz + make_interval(secs => k % 80000), now(), 'executor-1', now(), 15
FROM generate_series(0, $2 - 1) AS k
"""
_STATES = """
INSERT INTO schedule_state (schedule_id, version, state, next_at, changed_at, planned_until,
                            dispatched, open_runs)
SELECT lpad(to_hex(k), 32, '0')::uuid, 1, 'active', now() + make_interval(secs => k), now(), now(),
       0, '{}'
FROM generate_series(0, $1 - 1) AS k
"""


@pytest.mark.requirement("S41")
async def test_no_frequent_statement_scans_or_hashes_an_unanalyzed_partition(
    database_url: str,
) -> None:
    async with open_pool(database_url, name="test") as pool, pool.acquire() as connection:
        for table in (f"runs_{NEW_DAY:%Y%m%d}", "schedule_state"):
            await connection.execute(f"ALTER TABLE {table} SET (autovacuum_enabled = off)")
        await connection.execute(_RUNS, NEW_DAY, ROWS)
        await connection.execute(_STATES, ROWS)
        for name, statement in STATEMENTS.items():
            explainer = Explainer(connection)
            await statement(explainer)

            assert explainer.nodes, f"The statement {name!r} did not reach the database."
            assert not explainer.kinds & {"Hash Join", "Merge Join"}, name
            assert not explainer.scanned, name
