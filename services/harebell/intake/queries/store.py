"""The SQL of the queries: bounded, read-only statements about the rows of one tenant."""

from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from typing import Any, Final, TypeAlias
from uuid import UUID

import asyncpg
import orjson
from sqlalchemy import (
    ARRAY,
    Boolean,
    ClauseElement,
    ColumnElement,
    DateTime,
    Select,
    and_,
    case,
    func,
    literal,
    literal_column,
    not_,
    null,
    or_,
    select,
    text,
    tuple_,
    union,
    union_all,
)

from harebell.contract.amqp_names import OPERATIONS_TENANT
from harebell.contract.breakers import MAX_SNAPSHOT_BREAKERS, BreakerState
from harebell.contract.errors import Rejected
from harebell.contract.ids import RunKey
from harebell.contract.queries import RunList, ScheduleList
from harebell.domain.page_cursor import PageCursor
from harebell.domain.run_states import RETENTION, ScheduleState
from harebell.intake.queries.views import Row
from harebell.intake.queries.why import RemovedHistory
from harebell.storage.engine import fetch_rows, translate_db_errors
from harebell.storage.tables import (
    JSON_COLUMNS,
    attempts,
    breakers,
    history_marks,
    runs,
    schedule_state,
    schedule_versions,
    schedules,
    tenant_breakers,
)

MAX_STATEMENT_TIME: Final = timedelta(seconds=5)  # the client waits 10 s for a response
MAX_ATTEMPTS: Final = 500  # of one run in a response, the latest
MAX_VERSIONS: Final = 100  # of one schedule in a response, the latest, without pending versions
MAX_OPEN_RUNS: Final = 1_000  # of one schedule that a query reads

MARK_OF_OTHERS: Final = ""  # the row of the tenants without an own row in `history_marks`

RowPage: TypeAlias = tuple[list[Row], bool]  # the rows, and whether more rows follow

_SET_TIMEOUT: Final = (
    f"SET LOCAL statement_timeout = {MAX_STATEMENT_TIME // timedelta(milliseconds=1)}"
)
# The planner underestimates a partition without statistics and would scan every partition.
PREFER_INDEXES: Final = (
    "SELECT set_config('enable_seqscan', 'off', true), set_config('enable_hashjoin', 'off', true),"
    " set_config('enable_mergejoin', 'off', true)"
)
# The list of runs follows the index by time until its page is full. Without statistics, as on a new
# day, the planner would read and sort all runs of the period instead.
_READ_IN_ORDER: Final = (
    "SELECT set_config('enable_sort', 'off', true), set_config('enable_hashjoin', 'off', true), "
    "set_config('enable_mergejoin', 'off', true)"
)

# A state filter follows the rule `schedule_status.visible_state`. The subquery of one value reads
# one row by its primary key, and only for completed schedules.
_has_open_run: ColumnElement[bool] = literal_column(
    """EXISTS (
    SELECT FROM unnest(schedule_state.open_runs) AS open_run (at)
    WHERE (SELECT runs.finished_at IS NULL FROM runs
           WHERE runs.scheduled_for = open_run.at AND runs.schedule_id = schedules.id))""",
    Boolean,
)
_STATE_COLUMNS: Final = (
    "reason",
    "next_at",
    "open_runs",
    "planned_until",
    "dispatched",
    "awaited_run",
    "pending_version",
    "pending_at",
    "consecutive_failures",
    "skipped_times",
    "executions",
    "failures",
    "last_run",
)
_SCHEDULES: Final = select(
    schedules,
    schedule_state.c.state.label("stored_state"),
    *(schedule_state.c[name] for name in _STATE_COLUMNS),
    # An active schedule keeps the end of its last pause for a while.
    case((schedule_state.c.state == "paused", schedule_state.c.paused_until)).label("paused_until"),
).join(schedule_state, schedule_state.c.schedule_id == schedules.c.id)

# The open runs of each row of a page, by their primary keys. `ended` counts the runs that the
# ticker has not counted yet, and `latest` is the last run that started or ended. OFFSET 0 keeps
# each lookup a subquery. PostgreSQL would otherwise read every partition once for each schedule.
# The retention records the last run of a schedule in `last_runs` before it removes the row.
_RUNS_OF_PAGE: Final = text("""
LATERAL (
    SELECT bool_or(runs.finished_at IS NULL) AS has_open_run,
           count(*) FILTER (WHERE runs.finished_at IS NOT NULL AND runs.state <> 'unresolved'
                              AND runs.attempt > 0) AS executions,
           count(*) FILTER (WHERE runs.state = 'dead') AS failures,
           array_agg(runs.scheduled_for) FILTER (WHERE runs.finished_at IS NOT NULL) AS times
    FROM (SELECT at FROM unnest(page.open_runs) AS open_run (at)
          ORDER BY at LIMIT :max_open_runs) AS earliest
    CROSS JOIN LATERAL (SELECT * FROM runs WHERE runs.scheduled_for = earliest.at
                        AND runs.schedule_id = page.id OFFSET 0) AS runs
) AS ended
LEFT JOIN LATERAL (
    SELECT runs.scheduled_for, runs.state, runs.reason, runs.started_at, runs.finished_at
    FROM ((SELECT at FROM unnest(page.open_runs) AS open_run (at)
           ORDER BY at DESC LIMIT :max_open_runs) UNION ALL SELECT page.last_run) AS newest (at)
    CROSS JOIN LATERAL (SELECT * FROM runs WHERE runs.scheduled_for = newest.at
                        AND runs.schedule_id = page.id OFFSET 0) AS runs
    WHERE CASE WHEN runs.finished_at IS NULL
               THEN runs.replay_number > 0 OR runs.attempt > 0 AND runs.due_at <= now()
               ELSE NOT (runs.state = 'cancelled' AND runs.attempt = 0
                         AND runs.reason IN ('superseded', 'paused')) END
    ORDER BY runs.state = 'skipped' AND runs.attempt = 0, runs.scheduled_for DESC LIMIT 1
) AS stored ON true
LEFT JOIN LATERAL (
    SELECT * FROM last_runs WHERE last_runs.schedule_id = page.id
    AND last_runs.scheduled_for = page.last_run AND stored.scheduled_for IS NULL
) AS removed ON true
CROSS JOIN LATERAL (
    SELECT coalesce(stored.scheduled_for, removed.scheduled_for) AS scheduled_for,
           coalesce(stored.state, removed.state) AS state,
           coalesce(stored.reason, removed.reason) AS reason,
           coalesce(stored.started_at, removed.started_at) AS started_at,
           coalesce(stored.finished_at, removed.finished_at) AS finished_at
) AS latest""").bindparams(max_open_runs=MAX_OPEN_RUNS)
_RUN_COLUMNS: Final = (
    literal_column(
        "CASE WHEN page.stored_state = 'completed' AND ended.has_open_run THEN 'active' "
        "ELSE page.stored_state END"
    ).label("state"),
    literal_column("ended.executions").label("ended_executions"),
    literal_column("ended.failures").label("ended_failures"),
    literal_column("ended.times", ARRAY(DateTime(timezone=True))).label("ended_times"),
    *(
        literal_column(f"latest.{name}").label(f"latest_{name}")
        for name in ("scheduled_for", "state", "reason", "started_at", "finished_at")
    ),
)

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


# The text of the condition of the index, which a parameter would hide from the planner.
_is_pending: Final = schedule_versions.c.status == literal("pending", literal_execute=True)


class IntakeStore:
    """The tables that queries read. A row of another tenant does not exist.

    Each method raises `DatabaseUnavailable`, or `Rejected` after `MAX_STATEMENT_TIME`.
    """

    def __init__(self, pool: asyncpg.Pool) -> None:
        self._pool = pool

    @asynccontextmanager
    async def connect(self, *settings: str) -> AsyncIterator[asyncpg.Connection]:
        """Open a transaction whose statements have a time limit, after the given settings."""
        with translate_db_errors():
            try:
                async with self._pool.acquire() as connection, connection.transaction():
                    for setting in (_SET_TIMEOUT, *settings):
                        await connection.execute(setting)
                    yield connection
            except asyncpg.QueryCanceledError as error:
                seconds = MAX_STATEMENT_TIME.total_seconds()
                reason = f"The query must take at most {seconds:g} s. Use narrower filters."
                raise Rejected(reason, code="too_slow") from error

    async def get_schedule(self, tenant: str, id_: UUID) -> Row | None:
        """Return a schedule, also a deleted one, with its state and its version's definition."""
        is_current = and_(
            schedule_versions.c.schedule_id == schedules.c.id,
            schedule_versions.c.version == schedules.c.version,
        )
        statement = (
            _SCHEDULES.add_columns(schedule_versions.c.definition)
            .join(schedule_versions, is_current)
            .where(schedules.c.tenant == tenant, schedules.c.id == id_)
        )
        return next(iter(await self._schedule_rows(_with_runs(statement))), None)

    async def list_schedules(self, tenant: str, query: ScheduleList) -> RowPage:
        """Return schedules with their states and their last runs, the newest first."""
        rows = await self._schedule_rows(schedule_page(tenant, query))
        return rows[: query.limit], len(rows) > query.limit

    async def list_versions(self, id_: UUID, in_force: int) -> list[Row]:
        """Return the latest versions of a schedule, the newest first.

        The result also contains the version in force and every pending version.
        Versions have no column for the tenant, so the caller checks the schedule first.
        """
        columns = (column for column in schedule_versions.c if column.name != "run_spec")
        of_schedule = schedule_versions.c.schedule_id == id_
        number = schedule_versions.c.version
        latest = select(number).where(of_schedule).order_by(number.desc()).limit(MAX_VERSIONS)
        pending = select(number).where(of_schedule, _is_pending)
        numbers = union(latest.subquery().select(), pending, select(literal(in_force)))
        statement = select(*columns).where(of_schedule, number.in_(numbers)).order_by(number.desc())
        return await self.read(statement)

    async def list_pending(self, id_: UUID) -> list[Row]:
        """Return the pending versions of a schedule in the order of their effective times."""
        statement = (
            select(schedule_versions.c.version, schedule_versions.c.effective_at)
            .where(schedule_versions.c.schedule_id == id_, _is_pending)
            .order_by(schedule_versions.c.effective_at)
        )
        return await self.read(statement)

    async def list_planned_versions(self, ids: Collection[UUID]) -> dict[UUID, list[Row]]:
        """Return the versions in force and the pending versions, by schedule.

        Versions have no column for the tenant, so the caller reads the schedules first.
        """
        if not ids:
            return {}
        is_planned = and_(
            schedule_state.c.schedule_id == schedule_versions.c.schedule_id,
            or_(schedule_versions.c.version == schedule_state.c.version, _is_pending),
        )
        statement = (
            select(schedule_versions)
            .join(schedule_state, is_planned)
            .where(schedule_versions.c.schedule_id.in_(ids))
        )
        versions: dict[UUID, list[Row]] = {id_: [] for id_ in ids}
        for row in await self.read(statement):
            versions[row["schedule_id"]].append(row)
        return versions

    async def list_breakers(self, tenant: str) -> list[Row]:
        """Return the breakers that hold all tenants now, and the own ones of the tenant.

        The operations tenant receives every breaker. The forced ones are first.
        """
        shared, own = select(null().label("tenant"), breakers), select(tenant_breakers)
        if tenant != OPERATIONS_TENANT:
            state = func.coalesce(breakers.c.forced, breakers.c.state)
            shared = shared.where(state != BreakerState.CLOSED)
            own = own.where(tenant_breakers.c.tenant == tenant)
        listed = union_all(shared, own).subquery()
        order = (
            listed.c.forced.is_(None),
            listed.c.state.desc(),
            listed.c.tenant.nulls_first(),
            listed.c.downstream,
        )
        return await self.read(select(listed).order_by(*order).limit(MAX_SNAPSHOT_BREAKERS))

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

    async def removed_history(self, tenant: str) -> RemovedHistory | None:
        """Return the history of a tenant that the retention has removed, or None before that."""
        names = history_marks.c.tenant
        statement = (
            select(history_marks.c.removed_until, history_marks.c.retention)
            .where(or_(names == tenant, names == MARK_OF_OTHERS))
            .order_by(names.desc())
            .limit(1)
        )
        row = await self._first_row(statement)
        return None if row is None else RemovedHistory(row["removed_until"], row["retention"])

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
        return (await self.read(statement))[::-1]

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
        ordered = _ordered(_RUNS.where(*conditions), columns, query.after)
        rows = await self.read(ordered.limit(query.limit + 1), _READ_IN_ORDER)
        return rows[: query.limit], len(rows) > query.limit

    async def read(self, statement: ClauseElement, *settings: str) -> list[Row]:
        """Return the rows of a statement, which names the tenants that it reads."""
        async with self.connect(*settings) as connection:
            return await fetch(connection, statement)

    async def _schedule_rows(self, statement: Select[Any]) -> list[Row]:
        return await self.read(statement, PREFER_INDEXES)

    async def _first_row(self, statement: Select[Any]) -> Row | None:
        return next(iter(await self.read(statement)), None)


async def fetch(connection: asyncpg.Connection, statement: ClauseElement) -> list[Row]:
    """Return the rows of a statement, with the values of its JSON columns."""
    return [_decoded(row) for row in await fetch_rows(connection, statement)]


def _decoded(row: Row) -> Row:
    return {
        name: orjson.loads(value) if name in JSON_COLUMNS and value is not None else value
        for name, value in row.items()
    }


def schedule_page(tenant: str, query: ScheduleList) -> Select[Any]:
    """Return the statement of one page and one further row, with the runs of each schedule."""
    return _with_runs(schedules_of_page(tenant, query))


def schedules_of_page(tenant: str, query: ScheduleList) -> Select[Any]:
    """Return the statement of the schedules of one page and one further schedule."""
    conditions = [schedules.c.tenant == tenant, *_schedule_conditions(query)]
    if query.state != ScheduleState.DELETED:
        conditions.append(schedule_state.c.state != ScheduleState.DELETED.value)
    if query.state is not None:
        conditions.append(_has_state(ScheduleState(query.state)))
    columns = (schedules.c.created_at, schedules.c.id)
    ordered = _ordered(_SCHEDULES.where(*conditions), columns, query.after)
    return ordered.limit(query.limit + 1)


def _with_runs(statement: Select[Any]) -> Select[Any]:
    """Add the columns about open runs to the few rows of a statement about schedules."""
    page = statement.subquery("page")
    return (
        select(page, *_RUN_COLUMNS)
        .select_from(page, _RUNS_OF_PAGE)
        .order_by(page.c.created_at.desc(), page.c.id.desc())
    )


def _ordered(
    statement: Select[Any],
    columns: tuple[ColumnElement[Any], ColumnElement[Any]],
    after: str | None,
) -> Select[Any]:
    """Return the statement with the newest rows first, from the cursor `after` on.

    The statement follows an index on `columns`, so a late page costs as much as the first.
    """
    if after is not None:
        cursor = PageCursor.parse(after)
        # The second condition implies the first, but only the first prunes partitions.
        statement = statement.where(
            columns[0] <= cursor.at, tuple_(*columns) < tuple_(cursor.at, cursor.id)
        )
    return statement.order_by(*(column.desc() for column in columns))


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
    """Return the condition of a visible state.

    A partial index contains the schedules that are neither active nor completed.
    PostgreSQL uses the index only if the statement contains the state as a literal.
    """
    stored = schedule_state.c.state
    is_stored = stored == literal(state.value, literal_execute=True)
    match state:
        case ScheduleState.ACTIVE:
            is_completed = stored == literal(ScheduleState.COMPLETED.value, literal_execute=True)
            return or_(is_stored, and_(is_completed, _has_open_run))
        case ScheduleState.COMPLETED:
            return and_(is_stored, not_(_has_open_run))
        case _:
            return is_stored
