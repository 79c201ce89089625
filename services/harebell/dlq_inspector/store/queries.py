"""The reading SQL of replays of many: a page of them, one, a page of its letters."""

from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

import asyncpg

from harebell.contract.dead_letter import DeadLetterFilter
from harebell.contract.errors import InvalidInput, NotFound
from harebell.contract.json_codec import decode_trusted
from harebell.contract.queries import DeadLetterList, ReplayJobItems, ReplayJobList
from harebell.contract.responses import Page
from harebell.dlq_inspector.model.views import (
    FIRST_PAGE,
    STORED,
    DeadLetterStateFilter,
    detail,
    shown_item,
    shown_job,
    summary,
    whole_job,
)
from harebell.domain.page_cursor import PageCursor

_JOB_PAGE: Final = """
SELECT * FROM replay_jobs
WHERE tenant = $1 AND created_at <= $2 AND (created_at < $2 OR id > $3)
ORDER BY created_at DESC, id
LIMIT $4
"""
_ONE_JOB: Final = "SELECT * FROM replay_jobs WHERE tenant = $1 AND id = $2"
_ITEMS: Final = """
SELECT * FROM replay_items WHERE job_id = $1 AND position > $2 ORDER BY position LIMIT $3
"""


async def replay_job_page(
    connection: asyncpg.Connection, tenant: str, asked: ReplayJobList
) -> Page:
    """Newest first. Raises `Malformed` for a cursor that is none."""
    after = PageCursor.parse(asked.after) if asked.after else FIRST_PAGE
    rows = await connection.fetch(_JOB_PAGE, tenant, after.at, after.id, asked.limit + 1)
    shown = rows[: asked.limit]
    more = len(rows) > len(shown)
    return Page(
        items=[shown_job(row) for row in shown],
        next=str(PageCursor(shown[-1]["created_at"], shown[-1]["id"])) if more else None,
    )


async def replay_job(connection: asyncpg.Connection, tenant: str, id_: UUID) -> dict[str, Any]:
    """Raises `NotFound`, for another tenant's too."""
    row = await connection.fetchrow(_ONE_JOB, tenant, id_)
    if row is None:
        raise NotFound(f"there is no replay {id_}", field="id")
    return whole_job(row)


async def items(connection: asyncpg.Connection, tenant: str, asked: ReplayJobItems) -> Page:
    """In the order that they are taken in; the cursor is a place."""
    await replay_job(connection, tenant, asked.id)
    after = asked.after or "0"
    if not after.isascii() or not after.isdigit() or len(after) > len("2000000000"):
        raise InvalidInput("is not the `next` of a page", field="after", code="invalid_cursor")
    rows = await connection.fetch(_ITEMS, asked.id, int(after), asked.limit + 1)
    shown = rows[: asked.limit]
    return Page(
        items=[shown_item(row) for row in shown],
        next=str(shown[-1]["position"]) if len(rows) > len(shown) else None,
    )


# Only what is given is asked: one statement for all would be planned as if all were.
_CONDITIONS: Final = {
    "group": "letter.group_id = ${}",
    "key": "letter.key = ${}",
    "tag": "letter.schedule_id IN (SELECT id FROM schedules WHERE tags @> ARRAY[${}::text])",
    "error": "letter.error_code = ${}",
    "since": "letter.dead_at >= ${}",
    "until": "letter.dead_at < ${}",
    "replayed": "(coalesce(letter.replay_number, 0) > 0) = ${}",
}


@dataclass(frozen=True, slots=True)
class Matching:
    """`condition` has the numbers of its parameters, `values` are theirs."""

    condition: str
    values: list[object]


def filter_conditions(asked: DeadLetterFilter, *, after: int) -> Matching:
    """Behind a statement's first parameters, of which there are `after`."""
    given = {name: value for name in _CONDITIONS if (value := getattr(asked, name)) is not None}
    parts = [_CONDITIONS[name].format(after + place) for place, name in enumerate(given, 1)]
    return Matching(" AND ".join(parts) or "true", [*given.values()])


_SHOWN_STATE: Final = """
    CASE WHEN letter.state NOT IN ('discarded', 'superseded') AND run.state = 'succeeded' THEN 'resolved'
        ELSE letter.state END
"""
_REPLAY_COUNT: Final = """(
    SELECT count(*) FROM replays JOIN dead_letters AS died ON died.id = replays.dead_letter_id
    WHERE died.schedule_id = letter.schedule_id AND died.scheduled_for = letter.scheduled_for
)"""

# One index scan a stored state, each in order and cut at the limit, whatever else is kept.
_PAGE: Final = f"""
SELECT letter.*, {_REPLAY_COUNT} AS replays
FROM (
    SELECT letter.* FROM unnest($2::text[]) AS wanted (state)
    CROSS JOIN LATERAL (
        SELECT letter.id, letter.kind, letter.schedule_id, letter.scheduled_for, letter.key,
            letter.tenant, letter.reason, letter.error_code, letter.error, letter.attempts,
            letter.dead_at, letter.replay_number, letter.group_id, run.state AS run_state,
            {_SHOWN_STATE} AS shown_state
        FROM dead_letters AS letter
        LEFT JOIN runs AS run
            ON run.scheduled_for = letter.scheduled_for AND run.schedule_id = letter.schedule_id
        WHERE letter.tenant = $1 AND letter.state = wanted.state
            AND ($3 = 'all' OR $3 = {_SHOWN_STATE})
            AND letter.dead_at <= $4 AND (letter.dead_at < $4 OR letter.id > $5)
            AND {{matching}}
        ORDER BY letter.dead_at DESC, letter.id
        LIMIT $6
    ) AS letter
    ORDER BY letter.dead_at DESC, letter.id
    LIMIT $6
) AS letter
ORDER BY letter.dead_at DESC, letter.id
"""  # noqa: S608  # constants

_ONE: Final = f"""
SELECT letter.*, run.state AS run_state, run.replay_number AS run_replay_number, {_SHOWN_STATE} AS shown_state,
    {_REPLAY_COUNT} AS replays
FROM dead_letters AS letter
LEFT JOIN runs AS run
    ON run.scheduled_for = letter.scheduled_for AND run.schedule_id = letter.schedule_id
WHERE letter.id = $2 AND letter.tenant = $1
"""  # noqa: S608  # constants

_REPLAYS: Final = """
SELECT replays.* FROM replays JOIN dead_letters AS died ON died.id = replays.dead_letter_id
WHERE died.schedule_id = $1 AND died.scheduled_for = $2
ORDER BY replays.replay_number DESC
LIMIT $3
"""
MAX_REPLAYS: Final = 100  # of one run that are shown, the latest first


async def dead_letter_page(
    connection: asyncpg.Connection, tenant: str, asked: DeadLetterList
) -> Page:
    """Newest first. Raises `Malformed` for a state or a cursor that is none."""
    wanted = DeadLetterStateFilter.parse(asked.state)
    after = PageCursor.parse(asked.after) if asked.after else FIRST_PAGE
    stored = [state.value for state in STORED[wanted]]
    chosen = filter_conditions(asked, after=6)
    rows = await connection.fetch(
        *(_PAGE.format(matching=chosen.condition), tenant, stored, wanted.value),
        *(after.at, after.id, asked.limit + 1, *chosen.values),
    )
    shown = rows[: asked.limit]
    more = len(rows) > len(shown)
    return Page(
        items=[summary(row) for row in shown],
        next=str(PageCursor(shown[-1]["dead_at"], shown[-1]["id"])) if more else None,
    )


async def dead_letter(connection: asyncpg.Connection, tenant: str, id_: UUID) -> dict[str, Any]:
    """Raises `NotFound`, for another tenant's too."""
    row = await connection.fetchrow(_ONE, tenant, id_)
    if row is None:
        raise NotFound(f"there is no dead letter {id_}", field="id")
    replays = await connection.fetch(
        _REPLAYS, row["schedule_id"], row["scheduled_for"], MAX_REPLAYS
    )
    return detail(row, decode_trusted(row["payload"].encode()), replays)
