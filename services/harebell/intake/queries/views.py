"""The views of rows, as users see schedules, versions, runs, attempts and breakers (pure)."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final, TypeAlias

from harebell.contract.errors import InvalidInput
from harebell.contract.ids import run_id
from harebell.contract.message import parse
from harebell.contract.schedule import Definition
from harebell.contract.types import milliseconds
from harebell.contract.views import (
    AttemptView,
    BreakerView,
    RunDetail,
    RunView,
    ScheduleDetail,
    ScheduleView,
    VersionListView,
    VersionView,
)
from harebell.domain.run_states import RunState, ScheduleState
from harebell.messaging.topology.delay_queues import COLD_ROUTE, DelayRoute, route

Row: TypeAlias = Mapping[str, Any]

_WAITING: Final = (RunState.STAGED, RunState.RETRYING)


def schedule_view(row: Row, *, now: datetime) -> ScheduleView:
    """Return the view of a row of `schedules` with its `schedule_state`."""
    return ScheduleView.model_validate({**row, "next_at": _next_run(row, now)})


def schedule_detail(row: Row, *, now: datetime) -> ScheduleDetail:
    """Return the view of such a row with the definition of its version."""
    fields = {**row, "next_at": _next_run(row, now), "definition": _definition_json(row)}
    return ScheduleDetail.model_validate(fields)


def version_list_view(schedule: Row, versions: Sequence[Row]) -> VersionListView:
    """Return the view of a schedule with its versions, in the order of `versions`."""
    views = [_version_view(row, in_force=schedule["version"]) for row in versions]
    return VersionListView(id=schedule["id"], key=schedule["key"], versions=views)


def run_view(row: Row) -> RunView:
    """Return the view of a row of `runs` with `key` and `first_started_at`."""
    return RunView.model_validate(_run_fields(row))


def run_detail(row: Row, attempts: Sequence[Row]) -> RunDetail:
    """Return the view of a run with its attempts, in the order of `attempts`."""
    views = [attempt_view(each) for each in attempts]
    return RunDetail.model_validate({**_run_fields(row), "attempts": views})


def attempt_view(row: Row) -> AttemptView:
    return AttemptView.model_validate({**row})


def breaker_view(row: Row) -> BreakerView:
    """Return the view of a breaker. A forced state is in effect before the detected state."""
    return BreakerView.model_validate({**row, "effective_state": row["forced"] or row["state"]})


def _version_view(row: Row, *, in_force: int) -> VersionView:
    fields = {
        **row,
        "in_force": row["version"] == in_force,
        "definition": _definition_json(row),
    }
    return VersionView.model_validate(fields)


def _definition_json(row: Row) -> dict[str, Any]:
    """Return the definition with its defaults, which PostgreSQL does not store.

    A definition that this release cannot read is shown as stored.
    """
    stored: dict[str, Any] = row["definition"]
    try:
        return parse(Definition, stored).to_full_json()
    except InvalidInput:
        return stored


def _next_run(row: Row, now: datetime) -> datetime | None:
    """Return the first open run in the future, or else the next scheduled time to plan.

    The column `next_at` is not always a scheduled time.
    The ticker also reads a schedule for the end of a pause and for a pending version.
    """
    times = [time for time in row["open_runs"] if time > now]
    next_at, pending_at = row["next_at"], row["pending_at"]
    is_scheduled = next_at is not None and (pending_at is None or next_at < pending_at)
    if is_scheduled and row["state"] == ScheduleState.ACTIVE:
        times.append(next_at)
    return min(times, default=None)


def _run_fields(row: Row) -> dict[str, Any]:
    delay, started_at = _delay_route(row), row["first_started_at"]
    return {
        **row,
        "run_id": run_id(row["schedule_id"], row["scheduled_for"]),
        "late_ms": started_at and milliseconds(started_at - row["due_at"]),
        "tier": delay and delay.tier.value,
        "tier_reason": delay and delay.reason,
    }


def _delay_route(row: Row) -> DelayRoute | None:
    """Return the route of a waiting run, as decided at the last publish of its ticket."""
    if row["state"] not in _WAITING:
        return None
    at, staged_at = row["next_attempt_at"] or row["due_at"], row["staged_at"]
    return COLD_ROUTE if staged_at is None else route(at, staged_at)
