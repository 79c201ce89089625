"""Replay jobs: their fixed sets of dead letters, their steps and the outcomes of their runs."""

from collections.abc import Mapping, Sequence
from dataclasses import fields
from datetime import datetime
from typing import Any, Final
from uuid import UUID

import asyncpg
from sqlalchemy import (
    ColumnElement,
    Insert,
    Subquery,
    Uuid,
    any_,
    func,
    insert,
    literal,
    literal_column,
    select,
)
from sqlalchemy.dialects.postgresql import ARRAY

from harebell.contract.commands import MAX_REPLAY_JOB_SIZE, ReplayJobStart
from harebell.contract.dead_letter import OpenDeadLetterFilter
from harebell.contract.errors import NotFound
from harebell.contract.json_codec import encode
from harebell.dlq_inspector.model.dead_letter import MAX_ERROR_LENGTH, DeadLetterKind
from harebell.dlq_inspector.model.replay_job import (
    AbortReason,
    Finish,
    ReplayJob,
    ReplayJobState,
    TakeBatch,
)
from harebell.dlq_inspector.model.results import DeadLetterState
from harebell.dlq_inspector.store.queries import filter_conditions
from harebell.domain.run_states import ENDED, RunState
from harebell.storage.engine import compile_statement
from harebell.storage.tables import dead_letters, replay_items

RUN_NOT_FOUND: Final = "run_not_found"  # the outcome of an item whose run the ledger has deleted

_ENDED_STATES: Final = sorted(state.value for state in ENDED)
_COLUMNS: Final[Sequence[str]] = [field.name for field in fields(ReplayJob)]

# A repeated command has the same id: it waits here for the first one and then inserts nothing.
_CREATE: Final = """
INSERT INTO replay_jobs (id, tenant, state, request, actor, note, canary, rate,
    abort_on_failure_ratio, pool, total, next_allowed_at, next_check_at, created_at)
VALUES ($1, $2, 'running', $3, $4, $5, $6, $7, $8, $9, 0, now(), now(), now())
ON CONFLICT (id) DO NOTHING RETURNING id
"""
_SET_TOTAL: Final = "UPDATE replay_jobs SET total = $2 WHERE id = $1"

_FIND_DUE: Final = (
    "SELECT id FROM replay_jobs WHERE next_check_at <= now() ORDER BY next_check_at LIMIT $1"
)
_NEXT_CHECK_TIME: Final = (
    "SELECT min(next_check_at) FROM replay_jobs WHERE next_check_at IS NOT NULL"
)
_LOCK_DUE: Final = (
    "SELECT * FROM replay_jobs WHERE id = $1 AND next_check_at <= now() FOR UPDATE SKIP LOCKED"
)
_LOCK: Final = "SELECT * FROM replay_jobs WHERE id = $1 AND tenant = $2 FOR UPDATE"

# A run with a later replay number than the job gave it has ended in `dead` before that replay.
_COUNT_OUTCOMES: Final = """
UPDATE replay_items AS item SET outcome = ended.outcome
FROM (
    SELECT unfinished.position, CASE WHEN run.scheduled_for IS NULL THEN $3
        WHEN run.replay_number > dead_letter.replay_number + 1 THEN $4
        ELSE run.state END AS outcome
    FROM replay_items AS unfinished
    LEFT JOIN dead_letters AS dead_letter ON dead_letter.tenant = $5
        AND dead_letter.id = unfinished.dead_letter_id
    LEFT JOIN runs AS run ON run.tenant = dead_letter.tenant
        AND run.scheduled_for = dead_letter.scheduled_for
        AND run.schedule_id = dead_letter.schedule_id
    WHERE unfinished.job_id = $1 AND unfinished.status = 'replayed' AND unfinished.outcome IS NULL
        AND (run.scheduled_for IS NULL OR run.state = ANY($2)
            OR run.replay_number > dead_letter.replay_number + 1)
) AS ended
WHERE item.job_id = $1 AND item.position = ended.position
RETURNING item.outcome
"""
_TAKE: Final = """
SELECT dead_letter_id FROM replay_items
WHERE job_id = $1 AND position > $2 ORDER BY position LIMIT $3
"""
_RECORD_RESULTS: Final = """
UPDATE replay_items AS item SET status = result.status
FROM unnest($2::uuid[], $3::text[]) AS result (dead_letter_id, status)
WHERE item.job_id = $1 AND item.position > $4 AND item.position <= $5
    AND item.dead_letter_id = result.dead_letter_id
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
_CHANGE_STATE: Final = """
UPDATE replay_jobs SET state = $2, reason = CASE WHEN $2 = 'aborted' THEN $4 END,
    changed_at = now(), changed_by = $3, next_allowed_at = now(), next_check_at = now(),
    finished_at = CASE WHEN $2 = 'aborted' THEN now() END
WHERE id = $1
"""
_PAUSE: Final = """
UPDATE replay_jobs SET state = 'paused', reason = $2, next_check_at = NULL WHERE id = $1
"""


async def count_selected(
    connection: asyncpg.Connection, tenant: str, command: ReplayJobStart
) -> int:
    """Count the dead letters that the command would replay."""
    selected = _selected(tenant, command)
    text, parameters = compile_statement(select(func.count()).select_from(selected))
    count: int = await connection.fetchval(text, *parameters)
    return count


async def create_replay_job(
    connection: asyncpg.Connection,
    command: ReplayJobStart,
    *,
    id_: UUID,
    tenant: str,
    actor: str | None,
) -> None:
    """Insert a replay job with its fixed set of dead letters, unless the job exists.

    Raise `NotFound` for an empty set. The caller must then roll back the transaction.
    """
    created = await connection.fetchval(
        _CREATE,
        id_,
        tenant,
        encode(command).decode(),
        actor,
        command.note,
        command.canary,
        command.rate,
        command.abort_on_failure_ratio,
        command.pool,
    )
    if created is None:
        return
    text, parameters = compile_statement(_insertion_of_items(id_, _selected(tenant, command)))
    status: str = await connection.execute(text, *parameters)
    total = int(status.rsplit(maxsplit=1)[-1])
    if not total:
        raise NotFound("The request must match at least one open dead letter of a run, not 0.")
    await connection.execute(_SET_TOTAL, id_, total)


def _selected(tenant: str, command: ReplayJobStart) -> Subquery:
    """Return the open dead letters of runs that the command names, the oldest first."""
    columns = dead_letters.c
    return (
        select(columns.id, columns.dead_at)
        .where(
            columns.tenant == tenant,
            columns.state == DeadLetterState.OPEN,
            columns.kind == DeadLetterKind.RUN,
            *_selection_conditions(command),
        )
        .order_by(columns.dead_at, columns.id)
        .limit(literal_column(str(MAX_REPLAY_JOB_SIZE)))
        .subquery("selected")
    )


def _selection_conditions(command: ReplayJobStart) -> list[ColumnElement[bool]]:
    if command.ids is not None:
        return [dead_letters.c.id == any_(literal(command.ids, ARRAY(Uuid)))]
    return filter_conditions(command.select or OpenDeadLetterFilter(all=True))


def _insertion_of_items(job_id: UUID, selected: Subquery) -> Insert:
    position = func.row_number().over(order_by=(selected.c.dead_at, selected.c.id))
    return insert(replay_items).from_select(
        ["job_id", "position", "dead_letter_id"],
        select(literal(job_id, Uuid), position, selected.c.id),
    )


async def find_due(connection: asyncpg.Connection, limit: int) -> list[UUID]:
    """Return the replay jobs to check now, the longest overdue first."""
    return [row["id"] for row in await connection.fetch(_FIND_DUE, limit)]


async def next_check_time(connection: asyncpg.Connection) -> datetime | None:
    """Return the earliest time at which a replay job must be checked."""
    at: datetime | None = await connection.fetchval(_NEXT_CHECK_TIME)
    return at


async def lock_due(connection: asyncpg.Connection, id_: UUID) -> ReplayJob | None:
    """Lock a due replay job. Return None if it is no longer due or another process locks it."""
    row = await connection.fetchrow(_LOCK_DUE, id_)
    return row and _replay_job(row)


async def lock(connection: asyncpg.Connection, tenant: str, id_: UUID) -> ReplayJob | None:
    """Lock a replay job of the tenant, or return None without one."""
    row = await connection.fetchrow(_LOCK, id_, tenant)
    return row and _replay_job(row)


async def count_outcomes(connection: asyncpg.Connection, job: ReplayJob) -> tuple[int, int]:
    """Record the runs that ended since the last check. Count the succeeded and the other runs."""
    rows = await connection.fetch(
        _COUNT_OUTCOMES, job.id, _ENDED_STATES, RUN_NOT_FOUND, RunState.DEAD.value, job.tenant
    )
    succeeded = sum(row["outcome"] == RunState.SUCCEEDED for row in rows)
    return succeeded, len(rows) - succeeded


async def take(connection: asyncpg.Connection, job: ReplayJob, count: int) -> list[UUID]:
    """Return the next dead letters in the order of their positions."""
    rows = await connection.fetch(_TAKE, job.id, job.taken, count)
    return [row["dead_letter_id"] for row in rows]


async def record_results(
    connection: asyncpg.Connection, job: ReplayJob, results: Mapping[str, str]
) -> None:
    """Record the results of the items that follow the items taken before."""
    ids = [UUID(id_) for id_ in results]
    last = job.taken + len(ids)
    await connection.execute(_RECORD_RESULTS, job.id, ids, list(results.values()), job.taken, last)


async def save(connection: asyncpg.Connection, job: ReplayJob, step: TakeBatch) -> None:
    """Record the counts of the job and the time of its next check."""
    await connection.execute(
        _SAVE,
        job.id,
        job.taken,
        job.replayed,
        job.succeeded,
        job.failed,
        step.next_allowed_at,
        step.next_check_at,
    )


async def finish(connection: asyncpg.Connection, job: ReplayJob, step: Finish) -> None:
    """Record the end of the job."""
    await connection.execute(
        _FINISH, job.id, step.state, step.reason, step.next_check_at, job.succeeded, job.failed
    )


async def change_state(
    connection: asyncpg.Connection, id_: UUID, state: ReplayJobState, *, actor: str | None
) -> None:
    """Record the state that a person requested. The job is due at once."""
    await connection.execute(_CHANGE_STATE, id_, state, actor, AbortReason.MANUAL)


async def pause_with_reason(connection: asyncpg.Connection, id_: UUID, reason: str) -> None:
    """Pause a job after an error, with the error as the reason for people."""
    await connection.execute(_PAUSE, id_, reason[:MAX_ERROR_LENGTH])


def _replay_job(row: Mapping[str, Any]) -> ReplayJob:
    values = {name: row[name] for name in _COLUMNS}
    return ReplayJob(**{**values, "state": ReplayJobState(row["state"])})
