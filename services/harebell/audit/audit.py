"""One audit: batches of schedules in one snapshot each, and their runs in slices of time."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final
from uuid import UUID

import asyncpg

from harebell.audit import store
from harebell.audit.liveness import find_missed_heartbeats
from harebell.audit.model.records import (
    LATE_AFTER,
    Schedule,
    Window,
    read_schedule,
)
from harebell.audit.model.report import MAX_FINDINGS, Report
from harebell.audit.model.rules import check_runs, check_schedule
from harebell.audit.model.waits import Waits
from harebell.audit.rates import load_rate_ranges
from harebell.audit.waits import load_labels, load_overlaps, load_waits
from harebell.contract.errors import InvalidInput
from harebell.contract.types import duration_text, instant_text
from harebell.domain.run_states import RETENTION
from harebell.domain.tenant_policy import TenantPolicies
from harebell.storage.engine import translate_db_errors

# A statement finds runs by their time, so each batch also passes the runs of other schedules.
BATCH: Final = 500  # schedules in one snapshot
TIME_SLICE: Final = timedelta(minutes=30)  # of the runs that are in memory together
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
    policies: TenantPolicies | None = None,
) -> Report:
    """Compare required runs with the ledger from `since` up to, without, `until` or now.

    A run that waited for the quota `runs_per_second` of `policies` is not late.
    Raise `InvalidInput` if `since` is over 30 days past.
    Raise `DatabaseUnavailable` if the connection fails.
    """
    with translate_db_errors():
        now: datetime = await connection.fetchval("SELECT now()")
        if now - since > RETENTION:
            days = duration_text(RETENTION)
            reason = f"The start must be at most {days} in the past, not {instant_text(since)}."
            raise InvalidInput(reason, field="since", code="too_early")
        window = Window(since=since, until=min(until or now, now), now=now, late_after=late_after)
        waits = await load_waits(connection, window)
        if policies is not None:
            rates = await load_rate_ranges(connection, window, policies)
            waits = replace(waits, rates=rates)
        report = Report(since=window.since, until=window.until, limit=limit)
        after: UUID | None = _LOWEST_ID
        while after is not None:
            async with connection.transaction(isolation="repeatable_read", readonly=True):
                after = await _audit_batch(
                    connection, report, window=window, scope=scope, after=after, waits=waits
                )
        report.missed_heartbeats = await find_missed_heartbeats(connection, late_after, waits)
    return report


async def _audit_batch(
    connection: asyncpg.Connection,
    report: Report,
    *,
    window: Window,
    scope: Scope,
    after: UUID,
    waits: Waits,
) -> UUID | None:
    """Audit the schedules after an id. Return the id of the last one, or None after the end."""
    rows = await store.load_schedules(
        connection, after=after, tenant=scope.tenant, schedule=scope.schedule, limit=BATCH
    )
    ids = [row["id"] for row in rows]
    versions = await store.load_versions(connection, ids)
    schedules: dict[UUID, Schedule] = {}
    for row in rows:
        schedule = read_schedule(row, versions.get(row["id"], []))
        if isinstance(schedule, Schedule):
            schedules[schedule.id] = schedule
            report.add_findings(check_schedule(schedule, window))
        else:
            report.add_findings([schedule])
    waits = replace(
        waits,
        overlaps=await load_overlaps(connection, ids),
        labels=await load_labels(connection, ids),
    )
    starts = await store.load_history_starts(connection)
    await _audit_runs(
        connection, report, window=window, schedules=schedules, waits=waits, starts=starts
    )
    report.schedules += len(rows)
    return ids[-1] if len(ids) == BATCH else None


async def _audit_runs(
    connection: asyncpg.Connection,
    report: Report,
    *,
    window: Window,
    schedules: Mapping[UUID, Schedule],
    waits: Waits,
    starts: Mapping[str, datetime],
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
            kept = kept_window(time_slice, starts, tenant=schedule.tenant)
            if kept is not None:
                coverage = check_runs(schedule, runs, found.orphans, window=kept, waits=waits)
                report.add_coverage(coverage)
            open_ranges[id_] = [run for run in runs if run.reaches(time_slice.until)]


def kept_window(window: Window, starts: Mapping[str, datetime], *, tenant: str) -> Window | None:
    """Return the part of a window whose runs the retention keeps, or None without such a part."""
    start = starts.get(tenant, starts.get("", window.since))
    return replace(window, since=max(window.since, start)) if start < window.until else None


def _time_slices(window: Window) -> Iterator[Window]:
    since = window.since
    while since < window.until:
        until = min(since + TIME_SLICE, window.until)
        yield replace(window, since=since, until=until)
        since = until
