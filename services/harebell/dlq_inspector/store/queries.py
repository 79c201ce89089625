"""Cold reads: the lists and the details of dead letters and replay jobs."""

from collections.abc import Sequence
from typing import Any, Final
from uuid import UUID

import asyncpg
from sqlalchemy import (
    ColumnElement,
    FromClause,
    Select,
    Text,
    and_,
    case,
    func,
    literal,
    not_,
    or_,
    select,
    true,
    tuple_,
)
from sqlalchemy.dialects.postgresql import ARRAY

from harebell.contract.dead_letter import DeadLetterFilter
from harebell.contract.errors import InvalidInput, NotFound
from harebell.contract.message import quoted
from harebell.contract.queries import (
    DeadLetterGet,
    DeadLetterList,
    ReplayJobGet,
    ReplayJobItems,
    ReplayJobList,
)
from harebell.contract.responses import Page
from harebell.contract.views import (
    DeadLetterDetail,
    DeadLetterView,
    ReplayItemView,
    ReplayJobDetail,
    ReplayJobView,
)
from harebell.dlq_inspector.model.results import DeadLetterState
from harebell.dlq_inspector.model.views import (
    FIRST_PAGE,
    STORED,
    DeadLetterStateFilter,
    Row,
    dead_letter_detail,
    dead_letter_view,
    replay_item_view,
    replay_job_detail,
    replay_job_view,
)
from harebell.dlq_inspector.store.replay_waits import find_wait
from harebell.domain.page_cursor import PageCursor
from harebell.domain.run_states import RunState
from harebell.storage.engine import fetch_page, fetch_rows
from harebell.storage.tables import (
    dead_letters,
    replay_items,
    replay_jobs,
    replays,
    runs,
    schedules,
)

MAX_REPLAYS: Final = 100  # replays of one run in a detail, the latest first
MAX_POSITION_DIGITS: Final = 9  # a position is an integer of 32 bits

_run_of_dead_letter: Final = and_(
    runs.c.tenant == dead_letters.c.tenant,
    runs.c.scheduled_for == dead_letters.c.scheduled_for,
    runs.c.schedule_id == dead_letters.c.schedule_id,
)
_shown_state: Final = case(
    (
        and_(
            dead_letters.c.state.not_in([DeadLetterState.DISCARDED, DeadLetterState.SUPERSEDED]),
            runs.c.state == RunState.SUCCEEDED,
        ),
        DeadLetterStateFilter.RESOLVED.value,
    ),
    else_=dead_letters.c.state,
)
_listed_columns: Final = (
    dead_letters.c.id,
    dead_letters.c.kind,
    dead_letters.c.schedule_id,
    dead_letters.c.scheduled_for,
    dead_letters.c.key,
    dead_letters.c.tenant,
    dead_letters.c.reason,
    dead_letters.c.error_code,
    dead_letters.c.error,
    dead_letters.c.attempts,
    dead_letters.c.dead_at,
    dead_letters.c.group_id,
    runs.c.state.label("run_state"),
    _shown_state.label("shown_state"),
)


async def dead_letter_page(
    connection: asyncpg.Connection, tenant: str, query: DeadLetterList
) -> Page[DeadLetterView]:
    """Return a page, the newest first. Raise `InvalidInput` for an unknown state or cursor."""
    statement = _dead_letter_list(tenant, query)
    rows, more = await fetch_page(connection, statement, query.limit)
    return Page[DeadLetterView](
        items=[dead_letter_view(row) for row in rows],
        next=next_cursor(rows[-1], "dead_at") if more else None,
    )


def _dead_letter_list(tenant: str, query: DeadLetterList) -> Select[Any]:
    """Return one index scan per stored state, each in order and limited to the page.

    One scan over several states would have to sort all dead letters of the tenant.
    """
    state = DeadLetterStateFilter.parse(query.state)
    stored = (
        func.unnest(literal([each.value for each in STORED[state]], ARRAY(Text)))
        .table_valued("state")
        .render_derived("stored")
    )
    conditions = [
        dead_letters.c.tenant == tenant,
        dead_letters.c.state == stored.c.state,
        follows_cursor(query.after, dead_letters.c.dead_at, dead_letters.c.id),
        *filter_conditions(query),
    ]
    if state is not DeadLetterStateFilter.ALL:
        conditions.append(_shown_state == state.value)
    of_state = (
        select(*_listed_columns)
        .join_from(dead_letters, runs, _run_of_dead_letter, isouter=True)
        .where(*conditions)
        .order_by(dead_letters.c.dead_at.desc(), dead_letters.c.id)
        .limit(query.limit + 1)
        .lateral("of_state")
    )
    # the count of replays is computed for the rows of the page only
    page = (
        select(of_state)
        .join_from(stored, of_state, true())
        .order_by(of_state.c.dead_at.desc(), of_state.c.id)
        .limit(query.limit + 1)
        .subquery("page")
    )
    replay_count = _replay_count(page)
    return select(page, replay_count.label("replays")).order_by(page.c.dead_at.desc(), page.c.id)


def filter_conditions(filter_: DeadLetterFilter) -> list[ColumnElement[bool]]:
    """Return the conditions of the given fields only.

    A statement with a condition for every field would have one plan for all filters.
    """
    columns = dead_letters.c
    conditions: list[ColumnElement[bool]] = []
    if filter_.group is not None:
        conditions.append(columns.group_id == filter_.group)
    if filter_.key is not None:
        conditions.append(columns.key == filter_.key)
    if filter_.tag is not None:
        tagged = select(schedules.c.tenant, schedules.c.id).where(
            schedules.c.tags.contains([filter_.tag])
        )
        conditions.append(tuple_(columns.tenant, columns.schedule_id).in_(tagged))
    if filter_.error is not None:
        conditions.append(columns.error_code == filter_.error)
    if filter_.since is not None:
        conditions.append(columns.dead_at >= filter_.since)
    if filter_.until is not None:
        conditions.append(columns.dead_at < filter_.until)
    if filter_.replayed is not None:
        has_replays = func.coalesce(columns.replay_number, 0) > 0
        conditions.append(has_replays if filter_.replayed else not_(has_replays))
    return conditions


def follows_cursor(
    after: str | None, at: ColumnElement[Any], id_: ColumnElement[Any]
) -> ColumnElement[bool]:
    """Return the condition of the rows after the cursor, the newest first, then by id.

    Raise `InvalidInput` for a text that is no cursor.
    """
    cursor = PageCursor.parse(after) if after else FIRST_PAGE
    return and_(at <= cursor.at, or_(at < cursor.at, id_ > cursor.id))


def next_cursor(last: Row, at: str) -> str:
    """Return the cursor after the last row of a page. `at` is the column of its time."""
    return str(PageCursor(last[at], last["id"]))


def _replay_count(dead_letter: FromClause) -> ColumnElement[int]:
    """Return the number of replays of the run or of the command.

    Each dead letter of a run counts, and a command has one.
    """
    of_run = dead_letters.alias("of_run")
    return (
        select(func.count())
        .select_from(replays.join(of_run, of_run.c.id == replays.c.dead_letter_id))
        .where(
            of_run.c.tenant == dead_letter.c.tenant,
            or_(
                of_run.c.id == dead_letter.c.id,
                and_(
                    of_run.c.schedule_id == dead_letter.c.schedule_id,
                    of_run.c.scheduled_for == dead_letter.c.scheduled_for,
                ),
            ),
        )
        .scalar_subquery()
    )


async def dead_letter(
    connection: asyncpg.Connection, tenant: str, query: DeadLetterGet
) -> DeadLetterDetail:
    """Return a dead letter of the tenant. Raise `NotFound` without one."""
    replay_count = _replay_count(dead_letters)
    statement = (
        select(
            dead_letters,
            runs.c.state.label("run_state"),
            runs.c.replay_number.label("run_replay_number"),
            _shown_state.label("shown_state"),
            replay_count.label("replays"),
        )
        .join_from(dead_letters, runs, _run_of_dead_letter, isouter=True)
        .where(dead_letters.c.tenant == tenant, dead_letters.c.id == query.id)
    )
    rows = await fetch_rows(connection, statement)
    if not rows:
        raise NotFound(f"The tenant has no dead letter {query.id}.", field="id")
    return dead_letter_detail(rows[0], await _replays_of(connection, rows[0]))


async def _replays_of(connection: asyncpg.Connection, row: Row) -> Sequence[Row]:
    columns = dead_letters.c
    is_same = (
        columns.id == row["id"]
        if row["schedule_id"] is None
        else and_(
            columns.schedule_id == row["schedule_id"],
            columns.scheduled_for == row["scheduled_for"],
        )
    )
    statement = (
        select(replays)
        .join(dead_letters, columns.id == replays.c.dead_letter_id)
        .where(columns.tenant == row["tenant"], is_same)
        .order_by(replays.c.replay_number.desc())
        .limit(MAX_REPLAYS)
    )
    return await fetch_rows(connection, statement)


async def replay_job_page(
    connection: asyncpg.Connection, tenant: str, query: ReplayJobList
) -> Page[ReplayJobView]:
    """Return a page, the newest first. Raise `InvalidInput` for an invalid cursor."""
    columns = replay_jobs.c
    statement = (
        select(replay_jobs)
        .where(
            columns.tenant == tenant,
            follows_cursor(query.after, columns.created_at, columns.id),
        )
        .order_by(columns.created_at.desc(), columns.id)
    )
    rows, more = await fetch_page(connection, statement, query.limit)
    return Page[ReplayJobView](
        items=[replay_job_view(row) for row in rows],
        next=next_cursor(rows[-1], "created_at") if more else None,
    )


async def replay_job(
    connection: asyncpg.Connection, tenant: str, query: ReplayJobGet
) -> ReplayJobDetail:
    """Return a replay job of the tenant and its wait. Raise `NotFound` without one."""
    row = await _replay_job_row(connection, tenant, query.id)
    return replay_job_detail(row, await find_wait(connection, row))


async def replay_item_page(
    connection: asyncpg.Connection, tenant: str, query: ReplayJobItems
) -> Page[ReplayItemView]:
    """Return a page in the order of the replay. The cursor is a position.

    Raise `NotFound` without a replay job of the tenant, or `InvalidInput` for an invalid cursor.
    """
    await _replay_job_row(connection, tenant, query.id)
    statement = (
        select(replay_items)
        .where(
            replay_items.c.job_id == query.id,
            replay_items.c.position > _position(query.after),
        )
        .order_by(replay_items.c.position)
    )
    rows, more = await fetch_page(connection, statement, query.limit)
    return Page[ReplayItemView](
        items=[replay_item_view(row) for row in rows],
        next=str(rows[-1]["position"]) if more else None,
    )


async def _replay_job_row(connection: asyncpg.Connection, tenant: str, id_: UUID) -> Row:
    columns = replay_jobs.c
    statement = select(replay_jobs, func.now().label("now")).where(
        columns.tenant == tenant, columns.id == id_
    )
    rows = await fetch_rows(connection, statement)
    if not rows:
        raise NotFound(f"The tenant has no replay job {id_}.", field="id")
    return rows[0]


def _position(after: str | None) -> int:
    if after is None:
        return 0
    if not (after.isascii() and after.isdigit() and len(after) <= MAX_POSITION_DIGITS):
        reason = f"The cursor must be the `next` of a page, not {quoted(after)}."
        raise InvalidInput(reason, field="after", code="invalid_cursor")
    return int(after)
