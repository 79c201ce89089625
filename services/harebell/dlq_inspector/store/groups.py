"""Failure groups: their counts, their list and the changes that people make."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final
from uuid import UUID

import asyncpg
from sqlalchemy import ColumnElement, FromClause, Select, and_, case, exists, func, select, true

from harebell.contract.dead_letter import TREND_PERIOD, GroupState
from harebell.contract.queries import GroupList
from harebell.contract.responses import Page
from harebell.contract.views import FailureGroupView
from harebell.dlq_inspector.model.fingerprint import Fingerprint
from harebell.dlq_inspector.model.results import DeadLetterState
from harebell.dlq_inspector.model.views import failure_group_view, parse_group_filter
from harebell.dlq_inspector.store.queries import follows_cursor, next_cursor
from harebell.storage.engine import fetch_page
from harebell.storage.tables import dead_letters, failure_groups


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupStatements:
    """The SQL texts of this module, which the in-memory ledger of the tests also answers."""

    record_failures: str
    update_groups: str


STATEMENTS: Final = GroupStatements(
    # A failure after the archiving reopens a group. A late report of an earlier failure does not.
    record_failures="""
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
""",
    update_groups="""
UPDATE failure_groups SET note = coalesce($3, note), state = coalesce($4, state),
    muted_until = CASE WHEN $4::text IS NULL THEN muted_until ELSE $5 END,
    changed_at = now(), changed_by = $6
WHERE tenant = $1 AND id IN (
    SELECT id FROM failure_groups WHERE tenant = $1 AND id = ANY($2::uuid[])
    ORDER BY id FOR UPDATE
)
RETURNING id
""",
)

_is_mute_over: Final = and_(
    failure_groups.c.state == GroupState.MUTED, failure_groups.c.muted_until <= func.now()
)
_shown_state: Final[ColumnElement[str]] = case(
    (_is_mute_over, GroupState.OPEN.value), else_=failure_groups.c.state
)


async def record_failures(
    connection: asyncpg.Connection, failures: Iterable[tuple[Fingerprint, datetime]]
) -> None:
    """Create or update the group of each failure, in the order in which every caller locks."""
    times: dict[UUID, tuple[Fingerprint, list[datetime]]] = {}
    for failed, at in failures:
        times.setdefault(failed.group_id, (failed, []))[1].append(at)
    rows = [
        (id_, group.tenant, group.target, group.error_code, group.message, min(at), max(at))
        for id_, (group, at) in sorted(times.items())
    ]
    if rows:
        await connection.execute(STATEMENTS.record_failures, *map(list, zip(*rows, strict=True)))


async def group_page(
    connection: asyncpg.Connection, tenant: str, query: GroupList
) -> Page[FailureGroupView]:
    """Return a page, the latest failure first.

    Raise `InvalidInput` for an unknown state or cursor.
    """
    rows, more = await fetch_page(connection, _group_list(tenant, query), query.limit)
    return Page[FailureGroupView](
        items=[failure_group_view(row) for row in rows],
        next=next_cursor(rows[-1], "last_at") if more else None,
    )


def _group_list(tenant: str, query: GroupList) -> Select[Any]:
    state = parse_group_filter(query.state)
    died_at = dead_letters.c.dead_at
    last_hour = died_at > func.now() - TREND_PERIOD
    hour_before = and_(
        died_at > func.now() - 2 * TREND_PERIOD, died_at <= func.now() - TREND_PERIOD
    )
    is_open = dead_letters.c.state == DeadLetterState.OPEN
    counts = (
        select(
            func.count().label("dead_letters"),
            func.count().filter(is_open).label("open"),
            func.count().filter(last_hour).label("last_hour"),
            func.count().filter(hour_before).label("hour_before"),
        )
        .where(
            dead_letters.c.group_id == failure_groups.c.id,
            dead_letters.c.tenant == failure_groups.c.tenant,
        )
        .lateral("counts")
    )
    statement = (
        select(failure_groups, _shown_state.label("shown_state"), counts)
        .join_from(failure_groups, counts, true())
        .where(
            failure_groups.c.tenant == tenant,
            follows_cursor(query.after, failure_groups.c.last_at, failure_groups.c.id),
        )
        .order_by(failure_groups.c.last_at.desc(), failure_groups.c.id)
    )
    if state is not None:
        statement = statement.where(_shown_state == state.value)
    if state is GroupState.OPEN:
        statement = statement.where(counts.c.open > 0)
    return statement


def is_hidden(dead_letter: FromClause) -> ColumnElement[bool]:
    """Return whether the group is muted or archived, so that its dead letters cause no alert."""
    return exists().where(
        failure_groups.c.id == dead_letter.c.group_id,
        failure_groups.c.tenant == dead_letter.c.tenant,
        _shown_state != GroupState.OPEN.value,
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
    """Return the updated groups of the tenant. None keeps the present note or state."""
    rows = await connection.fetch(
        STATEMENTS.update_groups, tenant, list(ids), note, state, until, actor
    )
    return frozenset(row["id"] for row in rows)
