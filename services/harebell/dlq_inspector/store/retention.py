"""Retention: the deletion of old and surplus dead letters, ended replay jobs and empty groups."""

from datetime import timedelta
from typing import Final

import asyncpg

MAX_BATCH: Final = 500  # dead letters of one transaction

_DELETE_OLD: Final = """
WITH old AS (
    SELECT id FROM dead_letters WHERE dead_at < now() - $1::interval
    ORDER BY dead_at LIMIT $2 FOR UPDATE SKIP LOCKED
), deleted_replays AS (
    DELETE FROM replays USING old WHERE dead_letter_id = old.id
)
DELETE FROM dead_letters USING old WHERE dead_letters.id = old.id
"""
_DELETE_SURPLUS: Final = """
WITH old AS (
    SELECT id FROM dead_letters WHERE id IN (
        SELECT id FROM dead_letters ORDER BY dead_at DESC, id OFFSET $1 LIMIT $2
    )
    ORDER BY dead_at LIMIT $2 FOR UPDATE SKIP LOCKED
), deleted_replays AS (
    DELETE FROM replays USING old WHERE dead_letter_id = old.id
)
DELETE FROM dead_letters USING old WHERE dead_letters.id = old.id
"""
_DELETE_REPLAY_JOBS: Final = """
WITH old AS (
    DELETE FROM replay_jobs WHERE finished_at < now() - $1::interval AND next_check_at IS NULL
    RETURNING id
)
DELETE FROM replay_items USING old WHERE job_id = old.id
"""
_DELETE_GROUPS: Final = """
DELETE FROM failure_groups WHERE last_at < now() - $1::interval
    AND NOT EXISTS (SELECT FROM dead_letters WHERE group_id = failure_groups.id)
"""


async def delete_old(connection: asyncpg.Connection, retention: timedelta) -> int:
    """Delete a batch of dead letters above the age. Return the number of deleted rows."""
    return _row_count(await connection.execute(_DELETE_OLD, retention, MAX_BATCH))


async def delete_surplus(connection: asyncpg.Connection, max_count: int) -> int:
    """Delete a batch of dead letters above the number. Return the number of deleted rows."""
    return _row_count(await connection.execute(_DELETE_SURPLUS, max_count, MAX_BATCH))


async def delete_ended_jobs_and_empty_groups(
    connection: asyncpg.Connection, retention: timedelta
) -> None:
    """Delete the replay jobs that have ended, and the groups without dead letters."""
    await connection.execute(_DELETE_REPLAY_JOBS, retention)
    await connection.execute(_DELETE_GROUPS, retention)


def _row_count(status: str) -> int:
    return int(status.rsplit(maxsplit=1)[-1])
