"""One audit: batches of schedules in one snapshot each, and their runs in slices of time."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final
from uuid import UUID

import asyncpg

from harebell.audit import store
from harebell.audit.liveness import find_missed_heartbeats
from harebell.audit.model.records import (
    LATE_AFTER,
    Finding,
    FindingKind,
    Schedule,
    Window,
    without_overlaps,
)
from harebell.audit.model.report import MAX_FINDINGS, Report
from harebell.audit.model.rules import check_runs, check_schedule
from harebell.contract.errors import InvalidInput, Rejected
from harebell.contract.schedule import Definition
from harebell.contract.types import EARLIEST, duration_text, instant_text
from harebell.domain.run_states import RETENTION, ScheduleState
from harebell.domain.versions import VersionWindow
from harebell.storage.engine import translate_db_errors

# A statement finds runs by their time, so each batch also passes the runs of other schedules.
BATCH: Final = 500  # schedules in one snapshot
TIME_SLICE: Final = timedelta(minutes=30)  # of the runs that are in memory together
_ACTIVE: Final = "active"
_RECURRENCE_ERRORS: Final = (Rejected, ArithmeticError, ValueError)
_SCHEDULE_COLUMNS: Final = (
    "id",
    "tenant",
    "key",
    "shown_version",
    "version",
    "planned_until",
    "dispatched",
    "next_at",
    "awaited_run",
    "pending_at",
)
_LOWEST_ID: Final = UUID(int=0)


@dataclass(frozen=True, slots=True)
class Scope:
    """The tenant and the schedule of an audit, by its key or its id. None selects all of them."""

    tenant: str | None = None
    schedule: str | None = None


ALL_SCHEDULES: Final = Scope()


async def run_audit(
    connection: asyncpg.Connection,
    since: datetime,
    until: datetime | None = None,
    *,
    scope: Scope = ALL_SCHEDULES,
    late_after: timedelta = LATE_AFTER,
    limit: int = MAX_FINDINGS,
) -> Report:
    """Compare required runs with the ledger from `since` up to, without, `until` or now.

    Raise `InvalidInput` if `since` is before the oldest retained runs.
    Raise `DatabaseUnavailable` if the connection fails.
    """
    with translate_db_errors():
        now: datetime = await connection.fetchval("SELECT now()")
        if now - since > RETENTION:
            days = duration_text(RETENTION)
            reason = f"The start must be at most {days} in the past, not {instant_text(since)}."
            raise InvalidInput(reason, field="since", code="too_early")
        window = Window(since=since, until=min(until or now, now), now=now, late_after=late_after)
        report = Report(since=window.since, until=window.until, limit=limit)
        after: UUID | None = _LOWEST_ID
        while after is not None:
            async with connection.transaction(isolation="repeatable_read", readonly=True):
                after = await _audit_batch(
                    connection, report, window=window, scope=scope, after=after
                )
        report.missed_heartbeats = await find_missed_heartbeats(connection, late_after)
    return report


async def _audit_batch(
    connection: asyncpg.Connection, report: Report, *, window: Window, scope: Scope, after: UUID
) -> UUID | None:
    """Audit the schedules after an id. Return the id of the last one, or None after the end."""
    rows = await store.load_schedules(
        connection, after=after, tenant=scope.tenant, schedule=scope.schedule, limit=BATCH
    )
    ids = [row["id"] for row in rows]
    versions = await store.load_versions(connection, ids)
    schedules: dict[UUID, Schedule] = {}
    for row in rows:
        schedule = _read_schedule(row, versions.get(row["id"], []))
        if isinstance(schedule, Schedule):
            schedules[schedule.id] = schedule
            report.add_findings(check_schedule(schedule, window))
        else:
            report.add_findings([schedule])
    await _audit_runs(connection, report, window=window, schedules=schedules)
    report.schedules += len(rows)
    return ids[-1] if len(ids) == BATCH else None


async def _audit_runs(
    connection: asyncpg.Connection,
    report: Report,
    *,
    window: Window,
    schedules: Mapping[UUID, Schedule],
) -> None:
    ids = list(schedules)
    open_ranges = await store.load_ranges(connection, ids, window.since)
    for time_slice in _time_slices(window):
        rows = await store.load_runs(
            connection, ids, since=time_slice.since, until=time_slice.until
        )
        for id_, schedule in schedules.items():
            found = rows.get(id_) or store.SliceRows()
            runs = [*open_ranges[id_], *found.runs]
            report.runs += len(found.runs)
            report.add_coverage(check_runs(schedule, runs, found.orphans, window=time_slice))
            open_ranges[id_] = [run for run in runs if run.reaches(time_slice.until)]


def _time_slices(window: Window) -> Iterator[Window]:
    since = window.since
    while since < window.until:
        until = min(since + TIME_SLICE, window.until)
        yield replace(window, since=since, until=until)
        since = until


def _read_schedule(row: asyncpg.Record, versions: Sequence[asyncpg.Record]) -> Schedule | Finding:
    """Return the schedule, or the finding that the audit cannot read the schedule."""
    if row["state"] is None:
        return _unreadable(row, "The schedule has no state row.")
    try:
        windows = without_overlaps(
            window for each in versions if (window := _version_window(row, each)) is not None
        )
        state = ScheduleState(row["state"])
    except _RECURRENCE_ERRORS as error:
        return _unreadable(row, f"The schedule cannot be computed, because of this error: {error}")
    columns = {name: row[name] for name in _SCHEDULE_COLUMNS}
    return Schedule(state=state, windows=windows, **columns)


def _unreadable(row: asyncpg.Record, text: str) -> Finding:
    return Finding(
        kind=FindingKind.UNREADABLE,
        tenant=row["tenant"],
        schedule_id=row["id"],
        key=row["key"],
        at=None,
        text=text,
    )


def _version_window(row: asyncpg.Record, version: asyncpg.Record) -> VersionWindow | None:
    """Return the window of a version, or None for a failed version.

    The version in force has decided up to the planning cursor.
    An earlier version has decided up to the handover to the next version.
    """
    number, is_active = version["version"], version["status"] == _ACTIVE
    is_in_force = number == row["version"]
    planned_until = row["planned_until"] if is_in_force else version["planned_until"]
    try:
        window = VersionWindow(
            schedule_id=row["id"],
            policy=Definition.model_validate_json(version["definition"]),
            since=version["effective_at"],
            number=number,
            is_active=is_active,
            anchor=version["anchor_at"],
            planned_from=version["planned_from"],
            planned_until=planned_until or EARLIEST,
        )
        _ = window.recurrence  # an invalid recurrence raises here, within the try statement
        start = window.start
    except _RECURRENCE_ERRORS:
        if is_active:
            raise
        return None
    return window if planned_until is not None else replace(window, planned_until=start)
