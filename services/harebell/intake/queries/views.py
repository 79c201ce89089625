"""Rows as users see them: schedules, runs and attempts in answers. Fields may only be added."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final, TypeAlias

from harebell.contract.errors import InvalidInput
from harebell.contract.ids import run_id
from harebell.contract.message import parse
from harebell.contract.schedule import Definition
from harebell.contract.types import instant_text
from harebell.domain.run_states import RunState, ScheduleState
from harebell.messaging.topology.delay_queues import COLD_ROUTE, DelayRoute, route

Row: TypeAlias = Mapping[str, Any]
View: TypeAlias = dict[str, Any]

WAITING: Final = (RunState.STAGED, RunState.RETRYING)
_SCHEDULE: Final = (
    *("id", "key", "name", "owner", "tenant", "class", "priority", "pool"),
    *("state", "reason", "version", "next_at", "tags", "created_at", "updated_at"),
    *("paused_until", "pending_version", "pending_at", "failures", "skipped_times"),
)
_VERSION: Final = (
    *("version", "accepted_at", "effective_at", "status", "status_reason"),
    *("actor", "note"),
)
_RUN: Final = (
    *("run_id", "schedule_id", "key", "scheduled_for", "due_at", "state", "reason"),
    *(
        "attempt",
        "replay_number",
        "started_at",
        "finished_at",
        "late_ms",
        "outcome",
        "next_attempt_at",
    ),
    *("expires_at", "pool", "lane", "version", "origin", "range_until", "range_count"),
    *("tier", "tier_reason"),
)
_ATTEMPT: Final = (
    *("replay_number", "number", "lease_holder", "started_at", "finished_at", "duration_ms"),
    *("outcome", "error_code", "error", "http_status", "result"),
)

_BREAKER: Final = (
    *("downstream", "acts", "state", "since", "failed", "attempts"),
    *("forced", "forced_at", "forced_until", "note", "actor"),
)


def breaker_view(row: Row) -> View:
    """`acts`: what it is forced to be, or else what dispatchers found."""
    return _view(row, _BREAKER, acts=row["forced"] or row["state"])


def schedule_view(row: Row, *, now: datetime) -> View:
    """Of `schedules` with its `schedule_state`."""
    return _view(row, _SCHEDULE, next_at=_next_run(row, now))


def run_view(row: Row) -> View:
    """Of `runs` with the key of its schedule, and `first_started_at` of its first attempt."""
    waits = _route(row)
    return _view(
        row,
        _RUN,
        route=waits and waits.tier,
        tier_reason=waits and waits.reason,
        run_id=run_id(row["schedule_id"], row["scheduled_for"]),
        late_ms=_late_ms(row["due_at"], row["first_started_at"]),
    )


def version_view(row: Row, *, in_force: int) -> View:
    return _view(row, _VERSION) | {
        "in_force": row["version"] == in_force,
        "definition": definition_view(row),
    }


def definition_view(row: Row) -> View:
    """With the defaults, which are not stored; one that nobody understands is shown as it is."""
    stored: View = row["definition"]
    try:
        return parse(Definition, stored).to_full_json()
    except InvalidInput:
        return stored


def attempt_view(row: Row) -> View:
    return _view(row, _ATTEMPT)


def _view(row: Row, names: tuple[str, ...], **derived: object) -> View:
    values = {**row, **derived}
    return {name: _shown(values[name]) for name in names}


def _shown(value: object) -> object:
    match value:
        case datetime():
            return instant_text(value)
        case list():
            return [_shown(each) for each in value]
        case None | bool() | int() | float():
            return value
        case _:
            return str(value)


def _next_run(row: Row, now: datetime) -> datetime | None:
    """What has been handed over, or else the instant where planning goes on.

    The ticker looks again at `next_at` also for the end of a pause and for a change that waits.
    """
    instants = [instant for instant in row["open_runs"] if instant > now]
    next_at, pending_at = row["next_at"], row["pending_at"]
    is_instant = next_at is not None and (pending_at is None or next_at < pending_at)
    if is_instant and row["state"] == ScheduleState.ACTIVE:
        instants.append(next_at)
    return min(instants, default=None)


def _route(row: Row) -> DelayRoute | None:
    """Of a run that waits for its time: as it was decided when its ticket was published last."""
    if row["state"] not in WAITING:
        return None
    at, staged_at = row["next_attempt_at"] or row["due_at"], row["staged_at"]
    return COLD_ROUTE if staged_at is None else route(at, staged_at)


def _late_ms(due_at: datetime, started_at: datetime | None) -> float | None:
    if started_at is None:
        return None
    return round((started_at - due_at).total_seconds() * 1000, 1)
