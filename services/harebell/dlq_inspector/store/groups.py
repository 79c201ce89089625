"""Groups of the same failure: their SQL, what is told of them, what a person decides of them."""

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Final
from uuid import UUID

import asyncpg

from harebell.contract.dead_letter import TREND_PERIOD, GroupState
from harebell.contract.json_codec import decode_trusted
from harebell.contract.queries import GroupList
from harebell.contract.responses import Page
from harebell.dlq_inspector.model.fingerprint import Fingerprint, fingerprint
from harebell.dlq_inspector.model.views import FIRST_PAGE, Row, group_filter, shown_group
from harebell.domain.page_cursor import PageCursor

SHOWN_STATE: Final = """
    (CASE WHEN state = 'muted' AND muted_until <= now() THEN 'open' ELSE state END)
"""
# A failure after it was archived takes a group out again; one from before that comes late does not.
_NOTE: Final = """
INSERT INTO failure_groups AS known
    (id, tenant, target, error_code, message, first_at, last_at, state)
SELECT failed.*, 'open'
FROM unnest($1::uuid[], $2::text[], $3::text[], $4::text[], $5::text[], $6::timestamptz[],
    $7::timestamptz[]) AS failed
ON CONFLICT (id) DO UPDATE SET
    first_at = least(known.first_at, EXCLUDED.first_at),
    last_at = greatest(known.last_at, EXCLUDED.last_at),
    state = CASE WHEN known.state = 'archived' AND EXCLUDED.last_at > known.changed_at THEN 'open'
        ELSE known.state END
"""
_PAGE: Final = f"""
SELECT known.*, {SHOWN_STATE} AS shown_state, counted.*
FROM failure_groups AS known
CROSS JOIN LATERAL (
    SELECT count(*) AS dead_letters, count(*) FILTER (WHERE state = 'open') AS open,
        count(*) FILTER (WHERE dead_at > now() - $6::interval) AS last_hour,
        count(*) FILTER (
            WHERE dead_at > now() - 2 * $6::interval AND dead_at <= now() - $6::interval
        ) AS hour_before
    FROM dead_letters WHERE group_id = known.id
) AS counted
WHERE known.tenant = $1 AND known.last_at <= $3 AND (known.last_at < $3 OR known.id > $4)
    AND ($2::text IS NULL OR {SHOWN_STATE} = $2) AND ($2 IS DISTINCT FROM 'open' OR open > 0)
ORDER BY known.last_at DESC, known.id
LIMIT $5
"""  # noqa: S608  # constants

_CHANGE: Final = """
UPDATE failure_groups SET note = coalesce($3, note), state = coalesce($4, state),
    muted_until = CASE WHEN $4::text IS NULL THEN muted_until ELSE $5 END,
    changed_at = now(), changed_by = $6
WHERE tenant = $1 AND id IN (
    SELECT id FROM failure_groups WHERE id = ANY($2::uuid[]) ORDER BY id FOR UPDATE
)
RETURNING id
"""


async def record_failures(
    connection: asyncpg.Connection, failures: Iterable[tuple[Fingerprint, datetime]]
) -> None:
    """That these have happened; in order of the groups, as all lock them."""
    times: dict[UUID, tuple[Fingerprint, list[datetime]]] = {}
    for failed, at in failures:
        times.setdefault(failed.group, (failed, []))[1].append(at)
    rows = [
        (id_, of.tenant, of.target, of.error_code, of.message, min(at), max(at))
        for id_, (of, at) in sorted(times.items())
    ]
    if rows:
        await connection.execute(_NOTE, *map(list, zip(*rows, strict=True)))


async def group_page(connection: asyncpg.Connection, tenant: str, asked: GroupList) -> Page:
    """The latest failure first. Raises `Malformed` for a state or a cursor that is none."""
    wanted = group_filter(asked.state)
    after = PageCursor.parse(asked.after) if asked.after else FIRST_PAGE
    rows = await connection.fetch(
        *(_PAGE, tenant, wanted, after.at, after.id, asked.limit + 1, TREND_PERIOD)
    )
    shown = rows[: asked.limit]
    more = len(rows) > len(shown)
    return Page(
        items=[shown_group(row) for row in shown],
        next=str(PageCursor(shown[-1]["last_at"], shown[-1]["id"])) if more else None,
    )


async def update_groups(
    connection: asyncpg.Connection,
    tenant: str,
    ids: Sequence[UUID],
    *,
    actor: str | None,
    note: str | None = None,
    state: GroupState | None = None,
    until: datetime | None = None,
) -> frozenset[UUID]:
    """Those of them that are the tenant's; None leaves a note, or a state, as it is."""
    rows = await connection.fetch(_CHANGE, tenant, list(ids), note, state, until, actor)
    return frozenset(row["id"] for row in rows)
