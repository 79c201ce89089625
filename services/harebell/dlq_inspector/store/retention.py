"""What the desk no longer keeps: letters too old or too many, and what belonged to them."""

from datetime import timedelta
from typing import Final

import asyncpg

BATCH: Final = 500  # letters of one transaction

_DELETE: Final = """
WITH old AS (
    SELECT id FROM dead_letters WHERE {which} ORDER BY dead_at LIMIT $2 FOR UPDATE SKIP LOCKED
), undone AS (
    DELETE FROM replays USING old WHERE dead_letter_id = old.id
)
DELETE FROM dead_letters USING old WHERE dead_letters.id = old.id
"""
_TOO_OLD: Final = _DELETE.format(which="dead_at < now() - $1::interval")
_TOO_MANY: Final = _DELETE.format(
    which="""id IN (
        SELECT id FROM dead_letters ORDER BY dead_at DESC, id OFFSET $1 LIMIT $2
    )"""
)
_JOBS: Final = """
WITH old AS (
    DELETE FROM replay_jobs WHERE finished_at < now() - $1::interval AND due_at IS NULL RETURNING id
)
DELETE FROM replay_items USING old WHERE job_id = old.id
"""
_GROUPS: Final = """
DELETE FROM failure_groups WHERE last_at < now() - $1::interval
    AND NOT EXISTS (SELECT FROM dead_letters WHERE group_id = failure_groups.id)
"""


async def delete_old(connection: asyncpg.Connection, keep: timedelta) -> int:
    """A batch of those that died longer ago; how many there were."""
    return _number(await connection.execute(_TOO_OLD, keep, BATCH))


async def delete_beyond(connection: asyncpg.Connection, most: int) -> int:
    """A batch of those that are too many, the oldest."""
    return _number(await connection.execute(_TOO_MANY, most, BATCH))


async def delete_records(connection: asyncpg.Connection, keep: timedelta) -> None:
    """Of replays of many that are over, and of groups that have no letter left."""
    await connection.execute(_JOBS, keep)
    await connection.execute(_GROUPS, keep)


def _number(done: str) -> int:
    return int(done.rsplit(maxsplit=1)[-1])
