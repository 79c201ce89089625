"""The door's SQL: questions about one tenant's schedules and runs. It only reads."""

from datetime import datetime, timedelta
from typing import Any, Final
from uuid import UUID

import asyncpg
from sqlalchemy import ColumnElement, Select, and_, any_, case, func, literal, select, text, tuple_
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncEngine

from harebell.contract.breakers import MAX_SNAPSHOT_BREAKERS
from harebell.contract.errors import Rejected
from harebell.contract.ids import RunKey
from harebell.domain.page_cursor import PageCursor
from harebell.domain.run_states import RETENTION, ScheduleState
from harebell.intake.queries.parse import Runs, Schedules
from harebell.intake.queries.views import Row
from harebell.storage.engine import translate_db_errors
from harebell.storage.tables import (
    attempts,
    breakers,
    runs,
    schedule_state,
    schedule_versions,
    schedules,
)

MAX_STATEMENT_TIME: Final = timedelta(seconds=5)  # of one statement; clients give up after 10 s
MAX_ATTEMPTS: Final = 500  # of one run that are shown, the latest
MAX_VERSIONS: Final = 100  # of one schedule that are shown, the latest

_BOUND: Final = text(
    f"SET LOCAL statement_timeout = {MAX_STATEMENT_TIME // timedelta(milliseconds=1)}"
)

_state_of = schedule_state.c.schedule_id == schedules.c.id
# Stored as completed when its last run is handed over; it is when no instant is to come.
_comes = func.now() < any_(schedule_state.c.open_runs)
_state = case(
    (and_(schedule_state.c.state == ScheduleState.COMPLETED, _comes), ScheduleState.ACTIVE.value),
    else_=schedule_state.c.state,
)


def _is_in(state: ScheduleState) -> ColumnElement[bool]:
    """What is neither active nor completed has an index; its condition must be seen to hold."""
    if state in (ScheduleState.ACTIVE, ScheduleState.COMPLETED):
        return _state == state.value
    return schedule_state.c.state == literal(state.value, literal_execute=True)


_SCHEDULES: Final = select(
    schedules,
    _state.label("state"),
    *(
        schedule_state.c[name]
        for name in (
            *("reason", "next_at", "open_runs", "planned_until", "dispatched", "awaited_run"),
            *("paused_until", "pending_version", "pending_at", "failures", "skipped_times"),
        )
    ),
).join(schedule_state, _state_of)

# The first attempt says how late a run began; it has a row of its own once it has ended.
_first = attempts.alias("first")
_first_of = and_(
    _first.c.scheduled_for == runs.c.scheduled_for,
    _first.c.schedule_id == runs.c.schedule_id,
    _first.c.replay_number == runs.c.replay_number,
    _first.c.number == 1,
)
_first_started_at = case(
    (runs.c.replay_number > 0, None),  # a replay is as late as the person who asked for it
    (runs.c.attempt == 1, runs.c.started_at),
    else_=_first.c.started_at,
).label("first_started_at")
_RUNS: Final = (
    select(runs, schedules.c.key, _first_started_at)
    .outerjoin(schedules, schedules.c.id == runs.c.schedule_id)
    .outerjoin(_first, _first_of)
)


class IntakeStore:
    """Raises `DatabaseUnavailable`, or `Rejected` where a question costs too much.

    Another tenant's row is no row.
    """

    def __init__(self, engine: AsyncEngine) -> None:
        self._engine = engine

    async def get_schedule(self, tenant: str, id_: UUID) -> Row | None:
        """With the definition of its version."""
        version_of = and_(
            schedule_versions.c.schedule_id == schedules.c.id,
            schedule_versions.c.version == schedules.c.version,
        )
        statement = (
            _SCHEDULES.add_columns(schedule_versions.c.definition)
            .join(schedule_versions, version_of)
            .where(schedules.c.tenant == tenant, schedules.c.id == id_)
        )
        return next(iter(await self._rows(statement)), None)

    async def schedules(self, tenant: str, asked: Schedules) -> list[Row]:
        """One more than asked for shows that there are more."""
        wanted = [schedules.c.tenant == tenant]
        if asked.tag is not None:
            wanted.append(schedules.c.tags.contains([asked.tag]))
        if asked.owner is not None:
            wanted.append(schedules.c.owner == asked.owner)
        if asked.name is not None:
            wanted.append(schedules.c.name == asked.name)
        if asked.state is not None:
            wanted.append(_is_in(asked.state))
        place = (schedules.c.created_at, schedules.c.id)
        return await self._page(_SCHEDULES.where(*wanted), place, asked.after, asked.limit)

    async def versions(self, id_: UUID) -> list[Row]:
        """Newest first. Versions have no tenant: ask for the schedule first."""
        statement = (
            select(*(column for column in schedule_versions.c if column.name != "run_spec"))
            .where(schedule_versions.c.schedule_id == id_)
            .order_by(schedule_versions.c.version.desc())
            .limit(MAX_VERSIONS)
        )
        return await self._rows(statement)

    async def breakers(self) -> list[Row]:
        """Those forced first; no tenant's."""
        order = (breakers.c.forced.is_(None), breakers.c.state.desc(), breakers.c.downstream)
        return await self._rows(select(breakers).order_by(*order).limit(MAX_SNAPSHOT_BREAKERS))

    async def run_of(self, tenant: str, id_: UUID, at: datetime) -> Row | None:
        """The run of an instant, or the row that stands for a range with it."""
        exact = await self.run(tenant, RunKey(at, id_))
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
        return next(iter(await self._rows(statement)), None)

    async def run(self, tenant: str, key: RunKey) -> Row | None:
        statement = _RUNS.where(
            runs.c.tenant == tenant,
            runs.c.scheduled_for == key.scheduled_for,
            runs.c.schedule_id == key.schedule_id,
        )
        return next(iter(await self._rows(statement)), None)

    async def attempts(self, key: RunKey) -> list[Row]:
        """In their order. Attempts have no tenant: ask for the run first."""
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

    async def runs(self, tenant: str, asked: Runs) -> list[Row]:
        """One more than asked for shows that there are more."""
        wanted = [runs.c.tenant == tenant, runs.c.scheduled_for >= asked.since]
        if asked.schedule_id is not None:
            wanted.append(runs.c.schedule_id == asked.schedule_id)
        if asked.until is not None:
            wanted.append(runs.c.scheduled_for <= asked.until)
        if asked.tag is not None:
            wanted.append(schedules.c.tags.contains([asked.tag]))
        if asked.state is not None:
            wanted.append(runs.c.state == asked.state.value)
        if asked.outcome is not None:
            wanted.append(runs.c.outcome == asked.outcome)
        if asked.reason is not None:
            wanted.append(runs.c.reason == asked.reason)
        place = (runs.c.scheduled_for, runs.c.schedule_id)
        return await self._page(_RUNS.where(*wanted), place, asked.after, asked.limit)

    async def _page(
        self,
        statement: Select[Any],
        place: tuple[ColumnElement[Any], ColumnElement[Any]],
        after: PageCursor | None,
        limit: int,
    ) -> list[Row]:
        """Newest first, along an index: a page costs the same however far it lies behind."""
        if after is not None:
            # the first bound is implied by the second, but only it prunes partitions
            statement = statement.where(
                place[0] <= after.at, tuple_(*place) < tuple_(after.at, after.id)
            )
        ordered = statement.order_by(*(column.desc() for column in place)).limit(limit + 1)
        return await self._rows(ordered)

    async def _rows(self, statement: Select[Any]) -> list[Row]:
        with translate_db_errors():
            try:
                async with self._engine.begin() as connection:
                    await connection.execute(_BOUND)
                    return [row._asdict() for row in await connection.execute(statement)]
            except DBAPIError as error:
                if isinstance(error.orig and error.orig.__cause__, asyncpg.QueryCanceledError):
                    raise Rejected("took too long; ask for less", code="too_slow") from error
                raise
