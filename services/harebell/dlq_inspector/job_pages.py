"""The reading SQL of replays of many: a page of them, one, a page of its letters."""

from typing import Any, Final
from uuid import UUID

import asyncpg

from harebell.contract.answers import Page
from harebell.contract.errors import InvalidInput, NotFound
from harebell.contract.queries import ReplayJobItems, ReplayJobList
from harebell.dlq_inspector.core.job_view import shown_item, shown_job, whole_job
from harebell.dlq_inspector.core.view import FIRST_PAGE
from harebell.kernel.cursor import PageCursor

_JOB_PAGE: Final = """
SELECT * FROM replay_jobs
WHERE tenant = $1 AND created_at <= $2 AND (created_at < $2 OR id > $3)
ORDER BY created_at DESC, id
LIMIT $4
"""
_ONE_JOB: Final = "SELECT * FROM replay_jobs WHERE tenant = $1 AND id = $2"
_ITEMS: Final = """
SELECT * FROM replay_items WHERE job_id = $1 AND place > $2 ORDER BY place LIMIT $3
"""


async def replay_job_page(connection: asyncpg.Connection, tenant: str, asked: ReplayJobList) -> Page:
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
        next=str(shown[-1]["place"]) if len(rows) > len(shown) else None,
    )
