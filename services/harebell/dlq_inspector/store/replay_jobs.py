"""The SQL of replays of many: their frozen sets, their steps, what became of each letter."""

from collections.abc import Mapping, Sequence
from dataclasses import fields
from datetime import datetime
from typing import Any, Final
from uuid import UUID

import asyncpg

from harebell.contract.commands import MAX_REPLAY_JOB_SIZE, ReplayJobStart
from harebell.contract.dead_letter import OpenDeadLetterFilter
from harebell.contract.errors import NotFound
from harebell.contract.json_codec import encode
from harebell.dlq_inspector.model.dead_letter import MAX_ERROR, DeadLetterKind
from harebell.dlq_inspector.model.replay_job import (
    AbortReason,
    Finish,
    ReplayJob,
    ReplayJobState,
    TakeBatch,
)
from harebell.dlq_inspector.model.results import DeadLetterState
from harebell.dlq_inspector.store.queries import Matching, filter_conditions
from harebell.domain.run_states import ENDED, RunState

_ENDED: Final = sorted(state.value for state in ENDED)
RUN_NOT_FOUND: Final = "run_not_found"  # its run is no longer on record

_CHOSEN: Final = f"""
SELECT letter.id, letter.dead_at FROM dead_letters AS letter
WHERE letter.tenant = $1 AND letter.state = '{DeadLetterState.OPEN}'
    AND letter.kind = '{DeadLetterKind.RUN}'
    AND {{matching}}
ORDER BY letter.dead_at, letter.id
LIMIT {MAX_REPLAY_JOB_SIZE}
"""  # noqa: S608  # constants
_COUNT: Final = f"SELECT count(*) FROM ({_CHOSEN}) AS chosen"  # noqa: S608  # constants
_FREEZE: Final = f"""
INSERT INTO replay_items (job_id, position, dead_letter_id)
SELECT $2, row_number() OVER (ORDER BY dead_at, id), id FROM ({_CHOSEN}) AS chosen
"""  # noqa: S608  # constants

# A command that comes again finds the replay that it began; a repeat in flight waits for it here.
_OPEN: Final = """
INSERT INTO replay_jobs (id, tenant, state, request, actor, note, canary, rate, abort_on_failure_ratio, pool,
    total, next_allowed_at, next_check_at, created_at)
VALUES ($1, $2, 'running', $3, $4, $5, $6, $7, $8, $9, 0, now(), now(), now())
ON CONFLICT (id) DO NOTHING RETURNING id
"""
_TOTAL: Final = "UPDATE replay_jobs SET total = $2 WHERE id = $1"

_DUE: Final = (
    "SELECT id FROM replay_jobs WHERE next_check_at <= now() ORDER BY next_check_at LIMIT $1"
)
_NEXT_DUE: Final = "SELECT min(next_check_at) FROM replay_jobs WHERE next_check_at IS NOT NULL"
_LOCK_DUE: Final = (
    "SELECT * FROM replay_jobs WHERE id = $1 AND next_check_at <= now() FOR UPDATE SKIP LOCKED"
)
_LOCK: Final = "SELECT * FROM replay_jobs WHERE id = $1 AND tenant = $2 FOR UPDATE"

# A run that began another series since ended dead in the one that was replayed.
_OBSERVE: Final = """
UPDATE replay_items AS item SET outcome = seen.outcome
FROM (
    SELECT waiting.position, CASE WHEN run.scheduled_for IS NULL THEN $3
        WHEN run.replay_number > letter.replay_number + 1 THEN $4 ELSE run.state END AS outcome
    FROM replay_items AS waiting
    LEFT JOIN dead_letters AS letter ON letter.id = waiting.dead_letter_id
    LEFT JOIN runs AS run
        ON run.scheduled_for = letter.scheduled_for AND run.schedule_id = letter.schedule_id
    WHERE waiting.job_id = $1 AND waiting.status = 'replayed' AND waiting.outcome IS NULL
        AND (run.scheduled_for IS NULL OR run.replay_number > letter.replay_number + 1 OR run.state = ANY($2))
) AS seen
WHERE item.job_id = $1 AND item.position = seen.position
RETURNING item.outcome
"""
_NEXT: Final = """
SELECT dead_letter_id FROM replay_items WHERE job_id = $1 AND position > $2 ORDER BY position LIMIT $3
"""
_MARK: Final = """
UPDATE replay_items AS item SET status = became.status
FROM unnest($2::uuid[], $3::text[]) AS became (dead_letter_id, status)
WHERE item.job_id = $1 AND item.position > $4 AND item.position <= $5
    AND item.dead_letter_id = became.dead_letter_id
"""
_SAVE: Final = """
UPDATE replay_jobs SET taken = $2, replayed = $3, succeeded = $4, failed = $5, next_allowed_at = $6,
    next_check_at = $7, progressed_at = CASE
        WHEN taken < $2 OR succeeded < $4 OR failed < $5 THEN now() ELSE progressed_at END
WHERE id = $1
"""
_FINISH: Final = """
UPDATE replay_jobs SET state = $2, reason = $3, next_check_at = $4, finished_at = now(),
    succeeded = $5, failed = $6
WHERE id = $1
"""
_CHANGE: Final = """
UPDATE replay_jobs SET state = $2, reason = CASE WHEN $2 = 'aborted' THEN $4 END,
    changed_at = now(), changed_by = $3, next_allowed_at = now(), next_check_at = now(),
    finished_at = CASE WHEN $2 = 'aborted' THEN now() END
WHERE id = $1
"""
_HALT: Final = """
UPDATE replay_jobs SET state = 'paused', reason = $2, next_check_at = NULL WHERE id = $1
"""


async def count(connection: asyncpg.Connection, tenant: str, asked: ReplayJobStart) -> int:
    """Of the letters that it would replay."""
    chosen = _chosen(asked, after=1)
    statement = _COUNT.format(matching=chosen.condition)
    number: int = await connection.fetchval(statement, tenant, *chosen.values)
    return number


async def create_replay_job(
    connection: asyncpg.Connection, tenant: str, id_: UUID, asked: ReplayJobStart, actor: str | None
) -> None:
    """With its frozen set; one that is there already is left as it is.

    Raises `NotFound` where no letter is chosen: then the transaction should come to nothing.
    """
    made = await connection.fetchval(
        *(_OPEN, id_, tenant, encode(asked).decode(), actor, asked.note),
        *(asked.canary, asked.rate, asked.abort_on_failure_ratio, asked.pool),
    )
    if made is None:
        return
    chosen = _chosen(asked, after=2)
    statement = _FREEZE.format(matching=chosen.condition)
    done: str = await connection.execute(statement, tenant, id_, *chosen.values)
    total = int(done.rsplit(maxsplit=1)[-1])
    if not total:
        raise NotFound("no open dead letter of a run is among them")
    await connection.execute(_TOTAL, id_, total)


def _chosen(asked: ReplayJobStart, *, after: int) -> Matching:
    if asked.ids is not None:
        return Matching(f"letter.id = ANY(${after + 1}::uuid[])", [asked.ids])
    return filter_conditions(asked.select or OpenDeadLetterFilter(all=True), after=after)


async def due(connection: asyncpg.Connection, limit: int) -> list[UUID]:
    return [row["id"] for row in await connection.fetch(_DUE, limit)]


async def next_due(connection: asyncpg.Connection) -> datetime | None:
    at: datetime | None = await connection.fetchval(_NEXT_DUE)
    return at


async def lock_due(connection: asyncpg.Connection, id_: UUID) -> ReplayJob | None:
    """None where another inspector is at it, or it is no longer due."""
    row = await connection.fetchrow(_LOCK_DUE, id_)
    return row and _job(row)


async def lock(connection: asyncpg.Connection, tenant: str, id_: UUID) -> ReplayJob | None:
    row = await connection.fetchrow(_LOCK, id_, tenant)
    return row and _job(row)


async def count_outcomes(connection: asyncpg.Connection, job: ReplayJob) -> tuple[int, int]:
    """How many of its replayed runs have ended since: in success, and otherwise."""
    rows = await connection.fetch(_OBSERVE, job.id, _ENDED, RUN_NOT_FOUND, RunState.DEAD.value)
    succeeded = sum(row["outcome"] == RunState.SUCCEEDED for row in rows)
    return succeeded, len(rows) - succeeded


async def take(connection: asyncpg.Connection, job: ReplayJob, number: int) -> list[UUID]:
    rows = await connection.fetch(_NEXT, job.id, job.taken, number)
    return [row["dead_letter_id"] for row in rows]


async def record_results(
    connection: asyncpg.Connection, job: ReplayJob, results: Mapping[str, str]
) -> None:
    """The items behind those that were taken before."""
    ids = [UUID(id_) for id_ in results]
    places = (job.taken, job.taken + len(ids))
    await connection.execute(_MARK, job.id, ids, [*results.values()], *places)


async def save(connection: asyncpg.Connection, job: ReplayJob, step: TakeBatch) -> None:
    counts = (job.taken, job.replayed, job.succeeded, job.failed)
    await connection.execute(_SAVE, job.id, *counts, step.next_allowed_at, step.due_at)


async def finish(connection: asyncpg.Connection, job: ReplayJob, step: Finish) -> None:
    await connection.execute(
        *(_FINISH, job.id, step.state, step.reason, step.due_at, job.succeeded, job.failed)
    )


async def change(
    connection: asyncpg.Connection, id_: UUID, state: ReplayJobState, *, actor: str | None
) -> None:
    """By a person; the next look finds out when to look again."""
    await connection.execute(_CHANGE, id_, state, actor, AbortReason.MANUAL)


async def pause_with_reason(connection: asyncpg.Connection, id_: UUID, reason: str) -> None:
    """Paused by itself: a person must see why."""
    await connection.execute(_HALT, id_, reason[:MAX_ERROR])


_COLUMNS: Final[Sequence[str]] = [field.name for field in fields(ReplayJob)]


def _job(row: Mapping[str, Any]) -> ReplayJob:
    values = {name: row[name] for name in _COLUMNS}
    return ReplayJob(**{**values, "state": ReplayJobState(row["state"])})
