"""Retention: the deletion of old and surplus dead letters, ended replay jobs and empty groups."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Final

import asyncpg

MAX_BATCH: Final = 500  # dead letters of one transaction
MAX_GROUPS: Final = 10_000  # of a tenant; older ones without dead letters are deleted
MIN_GROUP_AGE: Final = timedelta(hours=1)  # without a failure; a later failure may use its group

# `kept_at` is the time of the insertion on the clock of the database. The time of death would let
# the caller of an import choose which dead letters are deleted.
_DELETE_OLD: Final = """
WITH old AS (
    SELECT id FROM dead_letters WHERE kept_at < now() - $1::interval
    ORDER BY kept_at LIMIT $2 FOR UPDATE SKIP LOCKED
), deleted_replays AS (
    DELETE FROM replays USING old WHERE dead_letter_id = old.id
)
DELETE FROM dead_letters USING old WHERE dead_letters.id = old.id
"""
# The recursion reads one index entry for each tenant instead of every row.
_DELETE_SURPLUS: Final = """
WITH RECURSIVE tenants AS (
    (SELECT tenant FROM dead_letters ORDER BY tenant LIMIT 1)
    UNION ALL
    SELECT (
        SELECT next.tenant FROM dead_letters AS next WHERE next.tenant > tenants.tenant
        ORDER BY next.tenant LIMIT 1
    )
    FROM tenants WHERE tenants.tenant IS NOT NULL
), surplus AS (
    SELECT surplus.id FROM tenants
    LEFT JOIN unnest($3::text[], $4::integer[]) AS quota (tenant, max_count)
        ON quota.tenant = tenants.tenant
    CROSS JOIN LATERAL (
        SELECT id FROM dead_letters AS letter WHERE letter.tenant = tenants.tenant
        ORDER BY kept_at DESC, dead_at DESC, id OFFSET coalesce(quota.max_count, $1) LIMIT $2
    ) AS surplus
    LIMIT $2
), old AS (
    SELECT id FROM dead_letters WHERE id IN (SELECT id FROM surplus)
    ORDER BY kept_at LIMIT $2 FOR UPDATE SKIP LOCKED
), deleted_replays AS (
    DELETE FROM replays USING old WHERE dead_letter_id = old.id
)
DELETE FROM dead_letters USING old WHERE dead_letters.id = old.id
"""
# The migration 0006 defines the function.
_MOVE_UNOWNED: Final = "SELECT harebell_move_unowned_dead_letters()"
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
# The number of dead letters bounds the groups that have some. A tenant chooses the messages of its
# errors, and so the number of the other groups.
_DELETE_SURPLUS_GROUPS: Final = """
DELETE FROM failure_groups WHERE last_at < now() - $2::interval
    AND id IN (
        SELECT id FROM (
            SELECT id, row_number() OVER (PARTITION BY tenant ORDER BY last_at DESC, id) AS place
            FROM failure_groups) AS ranked
        WHERE place > $1)
    AND NOT EXISTS (SELECT FROM dead_letters WHERE group_id = failure_groups.id)
"""


async def delete_old(connection: asyncpg.Connection, retention: timedelta) -> int:
    """Delete a batch of dead letters above the age. Return the number of deleted rows."""
    return _row_count(await connection.execute(_DELETE_OLD, retention, MAX_BATCH))


async def delete_surplus(
    connection: asyncpg.Connection, max_count: int, max_counts: Mapping[str, int] | None = None
) -> int:
    """Delete a batch of dead letters above the number of their tenant. Return the deleted rows.

    `max_counts` replaces the number for the given tenants.
    """
    tenants, numbers = zip(*max_counts.items(), strict=True) if max_counts else ((), ())
    return _row_count(
        await connection.execute(
            _DELETE_SURPLUS, max_count, MAX_BATCH, list(tenants), list(numbers)
        )
    )


async def move_unowned(connection: asyncpg.Connection) -> int:
    """Move dead letters that name no tenant from `default` to the operators. Return their number.

    Older versions, which may run during an upgrade, store such dead letters for `default`.
    """
    moved: int = await connection.fetchval(_MOVE_UNOWNED)
    return moved


async def delete_ended_jobs_and_empty_groups(
    connection: asyncpg.Connection, retention: timedelta
) -> None:
    """Delete the replay jobs that have ended, and the groups without dead letters."""
    await connection.execute(_DELETE_REPLAY_JOBS, retention)
    await connection.execute(_DELETE_GROUPS, retention)
    await delete_surplus_groups(connection, MAX_GROUPS)


async def delete_surplus_groups(connection: asyncpg.Connection, max_count: int) -> int:
    """Delete older groups without dead letters above the number of each tenant.

    Return the number of deleted groups.
    """
    return _row_count(await connection.execute(_DELETE_SURPLUS_GROUPS, max_count, MIN_GROUP_AGE))


def _row_count(status: str) -> int:
    return int(status.rsplit(maxsplit=1)[-1])
