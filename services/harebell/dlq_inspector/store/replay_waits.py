"""The waits of replay jobs: the runs that wait for a start, and the breakers of their targets."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import fields
from typing import Any, Final

import asyncpg

from harebell.contract.downstream import downstream_of_json
from harebell.contract.views import ReplayJobWait
from harebell.dlq_inspector.model.replay_job import ReplayJob, ReplayJobState
from harebell.dlq_inspector.model.replay_wait import StoredBreaker, needs_waiting_runs, wait_of

MAX_TARGETS: Final = 1_000  # targets of one job that a query reads; a job has few unfinished runs

# An edited copy has its target in its payload too. Bodies are not read, because they may be large.
_WAITING_TARGETS: Final = """
SELECT target->'http'->>'url' AS url, target->'amqp'->>'exchange' AS exchange,
       target->'task'->>'name' AS name, count(*) AS runs
FROM (
    SELECT dead_letter.payload->'target' AS target
    FROM replay_items AS item
    JOIN dead_letters AS dead_letter ON dead_letter.tenant = $3
        AND dead_letter.id = item.dead_letter_id
    JOIN runs AS run ON run.tenant = dead_letter.tenant
        AND run.scheduled_for = dead_letter.scheduled_for
        AND run.schedule_id = dead_letter.schedule_id
    WHERE item.job_id = $1 AND item.status = 'replayed' AND item.outcome IS NULL
        AND run.state IN ('staged', 'retrying')
) AS waiting
GROUP BY 1, 2, 3 ORDER BY runs DESC LIMIT $2
"""
_BREAKERS: Final = """
SELECT downstream, state, next_probe_at, forced, forced_until FROM breakers
WHERE downstream = ANY($1::text[]) AND coalesce(forced, state) <> 'closed'
UNION ALL
SELECT downstream, state, next_probe_at, forced, forced_until FROM tenant_breakers
WHERE downstream = ANY($1::text[]) AND tenant = $2 AND coalesce(forced, state) <> 'closed'
"""


async def find_wait(connection: asyncpg.Connection, row: Mapping[str, Any]) -> ReplayJobWait | None:
    """Return what the replay job of a row waits for at its column `now`, or None."""
    values = {field.name: row[field.name] for field in fields(ReplayJob)}
    job = ReplayJob(**{**values, "state": ReplayJobState(row["state"])})
    waiting_runs: Counter[str] = Counter()
    breakers: dict[str, StoredBreaker] = {}
    if needs_waiting_runs(job):
        for found in await connection.fetch(_WAITING_TARGETS, job.id, MAX_TARGETS, job.tenant):
            waiting_runs[_downstream(found)] += found["runs"]
        for found in await connection.fetch(_BREAKERS, list(waiting_runs), row["tenant"]):
            name, *columns = found.items()
            breakers[name[1]] = StoredBreaker(**dict(columns))
    return wait_of(job, row["now"], waiting_runs=waiting_runs, breakers=breakers)


def _downstream(found: asyncpg.Record) -> str:
    if found["url"] is not None:
        return downstream_of_json({"http": {"url": found["url"]}})
    if found["name"] is not None:
        return downstream_of_json({"task": {"name": found["name"]}})
    return downstream_of_json({"amqp": {"exchange": found["exchange"]}})
