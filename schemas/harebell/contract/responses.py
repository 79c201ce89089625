"""Responses: the JSON result of each item of a command and of each query."""

from typing import Final, Generic, Literal, TypeVar
from uuid import UUID

from harebell.contract.calendar_views import CalendarView
from harebell.contract.errors import HarebellError, InvalidCron, NotAllowed, QuotaExceeded
from harebell.contract.message import Message, empty_default
from harebell.contract.types import Instant
from harebell.contract.views import (
    BreakerView,
    DeadLetterDetail,
    DeadLetterView,
    ExplanationView,
    FailureGroupView,
    ForecastView,
    ParkedView,
    PreviewView,
    ReplayItemView,
    ReplayJobDetail,
    ReplayJobView,
    RunDetail,
    RunView,
    ScheduleDetail,
    ScheduledVersion,
    ScheduleView,
    TenantUsageView,
    VersionListView,
)

V = TypeVar("V")


class ErrorDetail(Message):
    """An error with a stable code, the field at fault and the reason as a sentence."""

    code: str
    reason: str
    field: str | None = None
    position: int | None = None  # in a cron expression, in characters from 0
    rule: str | None = None  # the field of the tenant policy, or of its quotas
    retry_after: float | None = None  # seconds after which a quota permits the request again


class ErrorResponse(Message):
    """The result of a request that changed nothing and that fails again if it is repeated."""

    ok: Literal[False] = False
    error: ErrorDetail


class ScheduleResponse(Message):
    """The result of a command to one schedule.

    `in_flight` contains the ids of the runs that an executor had already claimed. `supersedes`
    contains every pending version that the command has replaced.
    """

    ok: Literal[True] = True
    id: UUID
    key: str | None = None
    version: int
    # created, updated, unchanged, change_scheduled, change_missed, paused, resumed, cancelled,
    # deleted, triggered, skipped, backfilled, previewed
    status: str
    state: str
    next_at: list[Instant] = empty_default(list)
    in_flight: list[str] = empty_default(list)
    run_id: str | None = None
    runs: list[str] | None = None  # the run ids of a backfill
    # the version of this change, or else the next pending version; it takes effect at
    # `effective_at`
    pending_version: int | None = None
    effective_at: Instant | None = None
    supersedes: list[ScheduledVersion] = empty_default(list)
    warnings: list[str] | None = None  # of a put or a patch, about literal secrets


class BulkResponse(Message):
    """The result of a bulk operation. `schedule.resume` accepts its `bulk_operation_id`."""

    ok: Literal[True] = True
    bulk_operation_id: str
    changed: list[UUID]
    rejected: dict[str, str] = empty_default(dict)  # schedule id to reason
    in_flight: list[str] = empty_default(list)
    # schedule id to the pending versions that the operation has replaced
    supersedes: dict[str, list[ScheduledVersion]] = empty_default(dict)


class RunResponse(Message):
    """The result of a command to one run.

    `status` is cancelled, in_flight or resolved. After a report of a worker, `status` is completed,
    failed, renewed or repeated. `lease_until` is the end of a renewed lease, and `stop_reason` the
    reason of a stop request to the worker.
    """

    ok: Literal[True] = True
    run_id: str
    status: str
    state: str
    lease_until: Instant | None = None
    stop_reason: str | None = None


class DeadLetterResponse(Message):
    """The results of a command to dead letters or failure groups, by id.

    Dead letters have the result replayed, discarded, not_found, not_replayable or not_editable,
    edited copies edited, and imported dead letters imported or already_present. Failure groups have
    the result noted, muted, archived, open or not_found.
    """

    ok: Literal[True] = True
    results: dict[str, str]


class ReplayJobResponse(Message):
    """The result of a command to a replay job of `total` dead letters.

    `status` is started, previewed, nothing (no open dead letter), paused, resumed, aborted or
    unchanged.
    """

    ok: Literal[True] = True
    id: UUID | None = None
    status: str
    state: str | None = None  # running, paused, done, aborted
    total: int


class Page(Message, Generic[V]):
    """One page of a list. `next` is the cursor of the next page, or null on the last page."""

    ok: Literal[True] = True
    items: list[V]
    next: str | None = None


# The response type of each query. A query about one item returns its view with `ok`.
QUERY_RESPONSES: Final[dict[str, type[Message]]] = {
    "schedule.get": ScheduleDetail,
    "schedule.list": Page[ScheduleView],
    "schedule.versions": VersionListView,
    "schedule.preview": PreviewView,
    "schedule.why": ExplanationView,
    "run.get": RunDetail,
    "run.list": Page[RunView],
    "run.forecast": ForecastView,
    "dlq.list": Page[DeadLetterView],
    "dlq.get": DeadLetterDetail,
    "dlq.group.list": Page[FailureGroupView],
    "dlq.replay_job.list": Page[ReplayJobView],
    "dlq.replay_job.get": ReplayJobDetail,
    "dlq.replay_job.items": Page[ReplayItemView],
    "dlq.parked": ParkedView,
    "breaker.list": Page[BreakerView],
    "calendar.get": CalendarView,
    "calendar.list": Page[CalendarView],
    "tenant.usage": Page[TenantUsageView],
}


def error_response(error: HarebellError, *, within: str = "") -> ErrorResponse:
    """Return the response for an error. `within` is the path of the item, such as `[3]`."""
    field = error.field or ""
    path = f"{within}.{field}" if within and field and field[0] != "[" else within + field
    position = error.position if isinstance(error, InvalidCron) else None
    return ErrorResponse(
        error=ErrorDetail(
            code=error.code,
            reason=error.reason,
            field=path or None,
            position=position,
            rule=error.rule if isinstance(error, NotAllowed | QuotaExceeded) else None,
            retry_after=error.retry_after if isinstance(error, QuotaExceeded) else None,
        )
    )
