"""The SQL of the queries: bounded, read-only statements about the rows of one tenant."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from typing import Any, Final, TypeAlias
from uuid import UUID

import asyncpg
from sqlalchemy import ColumnElement, Select, and_, any_, case, func, literal, select, text, tuple_
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from harebell.contract.breakers import MAX_SNAPSHOT_BREAKERS
from harebell.contract.errors import Rejected
from harebell.contract.ids import RunKey
from harebell.contract.queries import ListQuery, RunList, ScheduleList
from harebell.domain.page_cursor import PageCursor
from harebell.domain.run_states import RETENTION, ScheduleState
from harebell.intake.queries.views import Row
from harebell.storage.engine import fetch_page, fetch_rows, translate_db_errors
from harebell.storage.tables import (
    attempts,
    breakers,
    runs,
    schedule_state,
    schedule_versions,
    schedules,
)

MAX_STATEMENT_TIME: Final = timedelta(seconds=5)  # the client waits 10 s for a response
MAX_ATTEMPTS: Final = 500  # of one run in a response, the latest
MAX_VERSIONS: Final = 100  # of one schedule in a response, the latest

RowPage: TypeAlias = tuple[list[Row], bool]  # the rows, and whether more rows follow

_SET_TIMEOUT: Final = text(
    f"SET LOCAL statement_timeout = {MAX_STATEMENT_TIME // timedelta(milliseconds=1)}"
)
# The list of runs follows the index by time until its page is full. Without statistics, as on a new
# day, the planner would read and sort all runs of the period instead.
_READ_IN_ORDER = text(
    "SELECT set_config('enable_sort', 'off', true), set_config('enable_hashjoin', 'off', true), "
    "set_config('enable_mergejoin', 'off', true)"
)

# The ticker stores `completed` when it stages the last run, which may still be in the future.
_has_future_run = func.now() < any_(schedule_state.c.open_runs)
_state = case(
    (
        and_(schedule_state.c.state == ScheduleState.COMPLETED, _has_future_run),
        ScheduleState.ACTIVE.value,
    ),
    else_=schedule_state.c.state,
)
_STATE_COLUMNS: Final = (
    "reason",
    "next_at",
    "open_runs",
    "planned_until",
    "dispatched",
    "awaited_run",
    "paused_until",
    "pending_version",
    "pending_at",
    "consecutive_failures",
    "skipped_times",
)
_SCHEDULES: Final = select(
    schedules,
    _state.label("state"),
    *(schedule_state.c[name] for name in _STATE_COLUMNS),
).join(schedule_state, schedule_state.c.schedule_id == schedules.c.id)

# The lateness of a run is that of its first attempt, which has a row after its end.
_first = attempts.alias("first")
_first_of_run = and_(
    _first.c.scheduled_for == runs.c.scheduled_for,
    _first.c.schedule_id == runs.c.schedule_id,
    _first.c.replay_number == runs.c.replay_number,
    _first.c.number == 1,
)
_first_started_at = case(
    (runs.c.replay_number > 0, None),  # a person decides when a replay starts
    (runs.c.attempt == 1, runs.c.started_at),
    else_=_first.c.started_at,
).label("first_started_at")
_RUNS: Final = (
    select(runs, schedules.c.key, _first_started_at)
    .outerjoin(schedules, schedules.c.id == runs.c.schedule_id)
    .outerjoin(_first, _first_of_run)
)


class IntakeStore:
    """The tables that queries read. A row of another tenant does not exist.

    Each method raises `DatabaseUnavailable`, or `Rejected` after `MAX_STATEMENT_TIME`.
    """

    def __init__(self, engine: AsyncEngine) -> None:
        self._engine = engine

    @asynccontextmanager
    async def connect(
        self, *, in_order: bool = False
    ) -> AsyncIterator[AsyncConnection | asyncpg.Connection]:
        """Open a transaction whose statements have a time limit and, on request, never sort."""
        with translate_db_errors():
            try:
                async with self._engine.begin() as connection:
                    await connection.execute(_SET_TIMEOUT)
                    if in_order:
                        await connection.execute(_READ_IN_ORDER)
                    yield connection
            except DBAPIError as error:
                if isinstance(error.orig and error.orig.__cause__, asyncpg.QueryCanceledError):
                    seconds = MAX_STATEMENT_TIME.total_seconds()
                    reason = f"The query must take at most {seconds:g} s. Use narrower filters."
                    raise Rejected(reason, code="too_slow") from error
                raise

    async def get_schedule(self, tenant: str, id_: UUID) -> Row | None:
        """Return a schedule with its state and the definition of its version."""
        is_current = and_(
            schedule_versions.c.schedule_id == schedules.c.id,
            schedule_versions.c.version == schedules.c.version,
        )
        statement = (
            _SCHEDULES.add_columns(schedule_versions.c.definition)
            .join(schedule_versions, is_current)
            .where(schedules.c.tenant == tenant, schedules.c.id == id_)
        )
        return await self._first_row(statement)

    async def list_schedules(self, tenant: str, query: ScheduleList) -> RowPage:
        """Return schedules with their states, the newest first."""
        conditions = [schedules.c.tenant == tenant]
        conditions += _schedule_conditions(query)
        if query.state is not None:
            conditions.append(_has_state(ScheduleState(query.state)))
        columns = (schedules.c.created_at, schedules.c.id)
        return await self._page(_SCHEDULES.where(*conditions), columns, query)

    async def list_versions(self, id_: UUID) -> list[Row]:
        """Return the latest versions of a schedule, the newest first.

        Versions have no column for the tenant, so the caller checks the schedule first.
        """
        columns = (column for column in schedule_versions.c if column.name != "run_spec")
        statement = (
            select(*columns)
            .where(schedule_versions.c.schedule_id == id_)
            .order_by(schedule_versions.c.version.desc())
            .limit(MAX_VERSIONS)
        )
        return await self._rows(statement)

    async def list_breakers(self) -> list[Row]:
        """Return the breakers, the forced ones first. Breakers belong to no tenant."""
        order = (breakers.c.forced.is_(None), breakers.c.state.desc(), breakers.c.downstream)
        return await self._rows(select(breakers).order_by(*order).limit(MAX_SNAPSHOT_BREAKERS))

    async def find_run(self, tenant: str, id_: UUID, at: datetime) -> Row | None:
        """Return the run of a scheduled time, or the row of a range that contains the time."""
        exact = await self.get_run(tenant, RunKey(at, id_))
        if exact is not None:
            return exact
        statement = (
            _RUNS.where(
                runs.c.tenant == tenant,
                runs.c.schedule_id == id_,
                runs.c.scheduled_for.between(at - RETENTION, at),
                runs.c.range_until >= at,
            )
            .order_by(runs.c.scheduled_for.desc())
            .limit(1)
        )
        return await self._first_row(statement)

    async def get_run(self, tenant: str, key: RunKey) -> Row | None:
        statement = _RUNS.where(
            runs.c.tenant == tenant,
            runs.c.scheduled_for == key.scheduled_for,
            runs.c.schedule_id == key.schedule_id,
        )
        return await self._first_row(statement)

    async def list_attempts(self, key: RunKey) -> list[Row]:
        """Return the latest attempts of a run in their order.

        Attempts have no column for the tenant, so the caller checks the run first.
        """
        statement = (
            select(attempts)
            .where(
                attempts.c.scheduled_for == key.scheduled_for,
                attempts.c.schedule_id == key.schedule_id,
            )
            .order_by(attempts.c.replay_number.desc(), attempts.c.number.desc())
            .limit(MAX_ATTEMPTS)
        )
        return (await self._rows(statement))[::-1]

    async def list_runs(
        self, tenant: str, query: RunList, *, since: datetime, id_: UUID | None
    ) -> RowPage:
        """Return runs from `since` on, of one schedule or of all, the newest first.

        `since` bounds the partitions that the statement reads.
        """
        conditions = [runs.c.tenant == tenant, runs.c.scheduled_for >= since]
        if id_ is not None:
            conditions.append(runs.c.schedule_id == id_)
        if query.until is not None:
            conditions.append(runs.c.scheduled_for < query.until)
        conditions += _schedule_conditions(query)
        if query.state is not None:
            conditions.append(runs.c.state == query.state)
        if query.outcome is not None:
            conditions.append(runs.c.outcome == query.outcome)
        if query.reason is not None:
            conditions.append(runs.c.reason == query.reason)
        columns = (runs.c.scheduled_for, runs.c.schedule_id)
        return await self._page(_RUNS.where(*conditions), columns, query, in_order=True)

    async def _page(
        self,
        statement: Select[Any],
        columns: tuple[ColumnElement[Any], ColumnElement[Any]],
        query: ListQuery,
        *,
        in_order: bool = False,
    ) -> RowPage:
        """Return one page, the newest rows first.

        The statement follows an index on `columns`, so a late page costs as much as the first.
        """
        if query.after is not None:
            cursor = PageCursor.parse(query.after)
            # The second condition implies the first, but only the first prunes partitions.
            statement = statement.where(
                columns[0] <= cursor.at, tuple_(*columns) < tuple_(cursor.at, cursor.id)
            )
        ordered = statement.order_by(*(column.desc() for column in columns))
        async with self.connect(in_order=in_order) as connection:
            return await fetch_page(connection, ordered, query.limit)

    async def _rows(self, statement: Select[Any]) -> list[Row]:
        async with self.connect() as connection:
            return await fetch_rows(connection, statement)

    async def _first_row(self, statement: Select[Any]) -> Row | None:
        return next(iter(await self._rows(statement)), None)


def _schedule_conditions(query: ScheduleList | RunList) -> list[ColumnElement[bool]]:
    """Return the conditions on the tags, the owner and the name of a schedule."""
    conditions = []
    if query.tag is not None:
        conditions.append(schedules.c.tags.contains([query.tag]))
    if query.owner is not None:
        conditions.append(schedules.c.owner == query.owner)
    if query.name is not None:
        conditions.append(schedules.c.name == query.name)
    return conditions


def _has_state(state: ScheduleState) -> ColumnElement[bool]:
    """Return the condition of a state.

    A partial index contains the schedules that are neither active nor completed.
    PostgreSQL uses the index only if the statement contains the state as a literal.
    """
    if state in (ScheduleState.ACTIVE, ScheduleState.COMPLETED):
        return _state == state.value
    return schedule_state.c.state == literal(state.value, literal_execute=True)
