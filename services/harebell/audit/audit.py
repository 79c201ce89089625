"""An audit: schedules batch by batch, each batch read as of one moment, its time in stretches."""

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
    Span,
    Window,
    without_overlaps,
)
from harebell.audit.model.report import MOST, Report
from harebell.audit.model.rules import check_runs, check_schedule
from harebell.contract.errors import InvalidInput, Rejected
from harebell.contract.schedule import Definition
from harebell.contract.types import duration_text
from harebell.domain.recurrence import initial_cursor, recurrence_of
from harebell.domain.run_states import RETENTION, ScheduleState
from harebell.storage.engine import translate_db_errors

# Runs are found by their time: every batch passes over those of the others.
BATCH: Final = 500  # schedules read as of one moment
TIME_SLICE: Final = timedelta(minutes=30)  # of time whose runs are held at once
COMMENCED: Final = "active"
COMPUTING: Final = (Rejected, ArithmeticError, ValueError)  # what a timetable may raise
_FIRST: Final = UUID(int=0)


@dataclass(frozen=True, slots=True)
class Scope:
    """Whose schedules, and which one by its key or its id; None: all."""

    tenant: str | None = None
    schedule: str | None = None


EVERYTHING: Final = Scope()


async def run_audit(
    connection: asyncpg.Connection,
    since: datetime,
    until: datetime | None = None,
    *,
    scope: Scope = EVERYTHING,
    late_after: timedelta = LATE_AFTER,
    limit: int = MOST,
) -> Report:
    """What was owed against what was recorded, from `since` up to `until`, or to now.

    Reads only. Raises `Malformed` when there are no rows any more of so long ago.
    """
    with translate_db_errors():
        now: datetime = await connection.fetchval("SELECT now()")
        if now - since > RETENTION:
            reason = f"lies over {duration_text(RETENTION)} back: so long are runs kept"
            raise InvalidInput(reason, field="since", code="too_early")
        window = Window(since, min(until or now, now), now, late_after)
        report = Report(window.since, window.until, limit)
        after: UUID | None = _FIRST
        while after is not None:
            async with connection.transaction(isolation="repeatable_read", readonly=True):
                after = await _audit_batch(connection, report, window, scope, after)
        report.missed_heartbeats = await find_missed_heartbeats(connection, late_after)
    return report


async def _audit_batch(
    connection: asyncpg.Connection, report: Report, window: Window, scope: Scope, after: UUID
) -> UUID | None:
    """The last schedule of the batch; None: there are no more."""
    rows = await store.schedules(connection, after, scope.tenant, scope.schedule, BATCH)
    ids = [row["id"] for row in rows]
    versions = await store.versions(connection, ids)
    batch: dict[UUID, Schedule] = {}
    for row in rows:
        read = _read(row, versions.get(row["id"], []))
        if isinstance(read, Schedule):
            batch[read.id] = read
            report.find(check_schedule(read, window))
        else:
            report.find([read])
    await _audit_runs(connection, report, window, batch)
    report.schedules += len(rows)
    return ids[-1] if len(ids) == BATCH else None


async def _audit_runs(
    connection: asyncpg.Connection, report: Report, window: Window, batch: Mapping[UUID, Schedule]
) -> None:
    ids = list(batch)
    reaching = await store.ranges(connection, ids, window.since)
    for stretch in _cut(window):
        found = await store.runs(connection, ids, stretch.since, stretch.until)
        for id_, schedule in batch.items():
            mine = found.get(id_) or store.Rows()
            runs = [*reaching[id_], *mine.runs]
            report.runs += len(mine.runs)
            report.cover(check_runs(schedule, runs, mine.orphans, stretch))
            reaching[id_] = [run for run in runs if run.reaches(stretch.until)]


def _cut(window: Window) -> Iterator[Window]:
    since = window.since
    while since < window.until:
        until = min(since + TIME_SLICE, window.until)
        yield replace(window, since=since, until=until)
        since = until


def _read(row: asyncpg.Record, versions: Sequence[asyncpg.Record]) -> Schedule | Finding:
    def unread(words: str) -> Finding:
        return Finding(FindingKind.UNREADABLE, row["tenant"], row["id"], row["key"], None, words)

    if row["state"] is None:
        return unread("it has no state")
    try:
        spans = without_overlaps(
            span for each in versions if (span := _span(row, each)) is not None
        )
        state = ScheduleState(row["state"])
    except COMPUTING as error:
        return unread(f"it cannot be computed: {error}")
    names = ("id", "tenant", "key", "shown", "version", "planned_until", "dispatched")
    more = ("next_at", "awaited_run", "pending_at")
    return Schedule(state=state, spans=spans, **{name: row[name] for name in (*names, *more)})


def _span(row: asyncpg.Record, version: asyncpg.Record) -> Span | None:
    """The version in force has decided as far as planning stands, one before it up to the takeover.

    None of one that was rejected because it cannot be computed.
    """
    commenced = version["status"] == COMMENCED
    try:
        definition = Definition.model_validate_json(version["definition"])
        since = version["effective_at"]
        table = recurrence_of(definition, row["id"], version["anchor_at"] or since)
        after = version["planned_from"] or initial_cursor(table, since)
    except COMPUTING:
        if commenced:
            raise
        return None
    number = version["version"]
    to = row["planned_until"] if number == row["version"] else version["planned_until"]
    return Span(number, definition, table, since, after, to or after, commenced)
