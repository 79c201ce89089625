"""Answers: what a command or a query gets back, one per item, in order."""

from typing import Any, Literal
from uuid import UUID

from harebell.contract.errors import HarebellError, InvalidCron
from harebell.contract.message import Message, empty_default
from harebell.contract.types import Instant, Json


class ErrorDetail(Message):
    """Why not: a stable code, the field it is about, and the reason in words."""

    code: str
    reason: str
    field: str | None = None
    position: int | None = None


class ErrorResponse(Message):
    """Nothing was changed, and the same again would be refused again."""

    ok: Literal[False] = False
    error: ErrorDetail


class ScheduleResponse(Message):
    """Stored, and this is when it runs. `in_flight`: runs that had already been claimed."""

    ok: Literal[True] = True
    id: UUID
    key: str | None = None
    version: int
    # created, updated, unchanged, deferred, missed, paused, resumed, cancelled, triggered, skipped,
    # backfilled, previewed
    status: str
    state: str
    next_at: list[Instant] = empty_default(list)
    in_flight: list[str] = empty_default(list)
    run_id: str | None = None
    runs: list[str] | None = None  # of a backfill
    pending_version: int | None = None  # takes effect at `effective_at`
    effective_at: Instant | None = None


class BulkResponse(Message):
    """Of a command to many: `receipt` names the ones that it changed, for `schedule.resume`."""

    ok: Literal[True] = True
    bulk_operation_id: str
    changed: list[UUID]
    rejected: dict[str, str] = empty_default(dict)
    in_flight: list[str] = empty_default(list)


class RunResponse(Message):
    """`status`: cancelled, in_flight when it had already been claimed, or resolved."""

    ok: Literal[True] = True
    run_id: str
    status: str
    state: str


class DeadLetterResponse(Message):
    """`status` of each id: replayed, dropped, not_found, not_replayable.

    Of a group: noted, muted, archived, open, not_found. Of what was imported: imported, present.
    Of the copy that an edit made: edited; of what has none: not_editable.
    """

    ok: Literal[True] = True
    results: dict[str, str]


class ReplayJobResponse(Message):
    """`status`: started, previewed, nothing (none is open), paused, resumed, aborted, unchanged.

    `total`: how many letters it is for.
    """

    ok: Literal[True] = True
    id: UUID | None = None
    status: str
    state: str | None = None  # running, paused, done, aborted
    total: int


class Page(Message):
    """Some rows, and the cursor that continues behind them."""

    ok: Literal[True] = True
    items: list[dict[str, Any]]
    next: str | None = None


class One(Message):
    """What was asked for."""

    ok: Literal[True] = True
    item: Json


def error_response(error: HarebellError, *, within: str = "") -> ErrorResponse:
    """`within` is the place of the item in its array (`[3]`), put before the field."""
    field = error.field or ""
    path = f"{within}.{field}" if within and field and field[0] != "[" else within + field
    position = error.position if isinstance(error, InvalidCron) else None
    return ErrorResponse(
        error=ErrorDetail(
            code=error.code, reason=error.reason, field=path or None, position=position
        )
    )
