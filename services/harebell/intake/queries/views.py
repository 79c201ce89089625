"""The views of rows, as users see schedules, versions, runs, attempts and breakers (pure)."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any, Final, TypeAlias

from harebell.contract.errors import InvalidInput
from harebell.contract.ids import run_id
from harebell.contract.message import parse
from harebell.contract.redaction import redact_definition
from harebell.contract.schedule import Definition
from harebell.contract.types import milliseconds
from harebell.contract.views import (
    AttemptView,
    BreakerView,
    LastRunView,
    RunDetail,
    RunView,
    ScheduleDetail,
    ScheduleView,
    VersionListView,
    VersionView,
)
from harebell.domain.progress import is_stale, progress_text
from harebell.domain.run_states import RunState, ScheduleState, result_of
from harebell.messaging.topology.delay_queues import COLD_ROUTE, DelayRoute, route

Row: TypeAlias = Mapping[str, Any]

_WAITING: Final = (RunState.STAGED, RunState.RETRYING)


def schedule_view(row: Row, *, now: datetime, planned: datetime | None = None) -> ScheduleView:
    """Return the view of a row of `IntakeStore.list_schedules`.

    `planned` is the next time to plan of a row that `needs_versions`.
    """
    return ScheduleView.model_validate(_schedule_fields(row, now, planned))


def schedule_detail(
    row: Row,
    pending: Sequence[Row] = (),
    *,
    now: datetime,
    planned: datetime | None = None,
    reveal: bool = False,
) -> ScheduleDetail:
    """Return the view of a row of `IntakeStore.get_schedule`, like `schedule_view`.

    `pending` contains the pending versions in the order of their effective times.
    """
    definition = _definition_json(row, reveal=reveal)
    fields = {**_schedule_fields(row, now, planned), "definition": definition}
    return ScheduleDetail.model_validate({**fields, "pending_versions": [{**p} for p in pending]})


def version_list_view(
    schedule: Row, versions: Sequence[Row], *, reveal: bool = False
) -> VersionListView:
    """Return the view of a schedule with its versions, in the order of `versions`."""
    in_force = schedule["version"]
    views = [_version_view(row, in_force=in_force, reveal=reveal) for row in versions]
    return VersionListView(id=schedule["id"], key=schedule["key"], versions=views)


def run_view(row: Row) -> RunView:
    """Return the view of a row of `runs` with `key` and `first_started_at`."""
    return RunView.model_validate(_run_fields(row))


def run_detail(row: Row, attempts: Sequence[Row], *, now: datetime) -> RunDetail:
    """Return the view of a run with its progress and its attempts, in the order of `attempts`."""
    views = [attempt_view(each) for each in attempts]
    fields = {**_run_fields(row), "progress": _progress(row, now), "attempts": views}
    return RunDetail.model_validate(fields)


def _progress(row: Row, now: datetime) -> dict[str, Any] | None:
    at, progress = row["progress_at"], row["progress"]
    if at is None:
        return None
    lease = timedelta(seconds=row["lease_seconds"] or 0)
    is_old = row["state"] == RunState.RUNNING and is_stale(
        at, started_at=row["started_at"], lease=lease, now=now
    )
    text = progress_text(progress, stale_for=now - at if is_old else None)
    return {**progress, "text": text, "at": at, "is_stale": is_old}


def attempt_view(row: Row) -> AttemptView:
    return AttemptView.model_validate({**row, "is_failed_probe": bool(row.get("is_failed_probe"))})


def breaker_view(row: Row) -> BreakerView:
    """Return the view of a breaker. A forced state is in effect before the detected state."""
    return BreakerView.model_validate({**row, "effective_state": row["forced"] or row["state"]})


def _version_view(row: Row, *, in_force: int, reveal: bool) -> VersionView:
    fields = {
        **row,
        "in_force": row["version"] == in_force,
        "definition": _definition_json(row, reveal=reveal),
    }
    return VersionView.model_validate(fields)


def _definition_json(row: Row, *, reveal: bool) -> dict[str, Any]:
    """Return the definition with its defaults, which PostgreSQL does not store.

    A definition that this release cannot read is shown without its defaults. The definition
    contains literal secrets only with `reveal`.
    """
    definition: dict[str, Any] = row["definition"]
    with suppress(InvalidInput):
        definition = parse(Definition, definition).to_full_json()
        del definition["pinned_calendars"]  # `calendar.get` shows the content
    return definition if reveal else redact_definition(definition)


def _schedule_fields(row: Row, now: datetime, planned: datetime | None) -> dict[str, Any]:
    last_state = row["latest_state"] and RunState(row["latest_state"])
    return {
        **row,
        "result": result_of(ScheduleState(row["state"]), last_state),
        "next_at": _next_run(row, now, planned),
        "last_run": _last_run(row),
        # The ticker has counted the runs that are no longer among the open runs.
        "executions": row["executions"] + row["ended_executions"],
        "failures": row["failures"] + row["ended_failures"],
    }


def _last_run(row: Row) -> LastRunView | None:
    time = row["latest_scheduled_for"]
    if time is None:
        return None
    return LastRunView(
        run_id=run_id(row["id"], time),
        scheduled_for=time,
        state=row["latest_state"],
        reason=row["latest_reason"],
        started_at=row["latest_started_at"],
        finished_at=row["latest_finished_at"],
    )


def needs_versions(row: Row) -> bool:
    """Return whether the row has no next time, because its `next_at` is not the time of a run.

    The ticker also reads a schedule for a pending version, and for a time that a user skipped.
    """
    is_planned_later = row["pending_at"] is not None or row["next_at"] in row["skipped_times"]
    return _is_planned(row) and is_planned_later


def _next_run(row: Row, now: datetime, planned: datetime | None) -> datetime | None:
    """Return the first open run in the future, or else the next scheduled time to plan."""
    ended = row["ended_times"] or ()
    staged = [time for time in row["open_runs"] if time > now and time not in ended]
    if staged or not _is_planned(row):
        return min(staged, default=None)
    next_at: datetime | None = planned if needs_versions(row) else row["next_at"]
    return next_at


def _is_planned(row: Row) -> bool:
    """Return whether the schedule has a next time that does not depend on the end of a run."""
    return row["stored_state"] == ScheduleState.ACTIVE and row["awaited_run"] is None


def _run_fields(row: Row) -> dict[str, Any]:
    delay, started_at = _delay_route(row), row["first_started_at"]
    return {
        **row,
        "run_id": run_id(row["schedule_id"], row["scheduled_for"]),
        "late_ms": started_at and milliseconds(started_at - row["due_at"]),
        "tier": delay and delay.tier.value,
        "tier_reason": delay and delay.reason,
        "failed_probes": row.get("failed_probes") or 0,
    }


def _delay_route(row: Row) -> DelayRoute | None:
    """Return the route of a waiting run, as decided at the last publish of its ticket."""
    if row["state"] not in _WAITING:
        return None
    at, staged_at = row["next_attempt_at"] or row["due_at"], row["staged_at"]
    return COLD_ROUTE if staged_at is None else route(at, staged_at)
