"""Queries: requests that change nothing. Every list has a limit and a cursor."""

from datetime import timedelta
from enum import StrEnum
from typing import Annotated, Final
from uuid import UUID

from pydantic import Field

from harebell.contract.calendar import CalendarName
from harebell.contract.dead_letter import DeadLetterFilter
from harebell.contract.message import StrictMessage
from harebell.contract.schedule import Definition
from harebell.contract.types import Count, Instant, ShortText, Tenant, exactly_one_of

MAX_PAGE: Final = 500  # rows
MAX_PREVIEW: Final = 100  # scheduled times
MAX_PARKED: Final = 50  # messages, of up to 16 MiB each
MAX_USAGE_PAGE: Final = 50  # tenants
MAX_FORECAST: Final = timedelta(days=7)  # from the first to the last hour


class Query(StrictMessage):
    """The base of every query."""


class ScheduleRefQuery(Query):
    """The base of a query about one schedule, by key or by id."""

    key: ShortText | None = None
    id: UUID | None = None

    _check_reference = exactly_one_of("key", "id")


class ListQuery(Query):
    """The base of a query that returns a page. `after` is the cursor `next` of the last page."""

    limit: Annotated[Count, Field(le=MAX_PAGE)] = 50
    after: ShortText | None = None


class DefinitionQuery(ScheduleRefQuery):
    """The base of a query whose response contains definitions.

    With `reveal`, the definitions contain their literal secrets. Only an operator may set it.
    """

    reveal: bool | None = None


class ScheduleGet(DefinitionQuery):
    """A query for one schedule with its definition, its state and its next scheduled time."""


class ScheduleList(ListQuery):
    """A query for the schedules of the tenant, the newest first."""

    tag: ShortText | None = None
    owner: ShortText | None = None
    name: ShortText | None = None
    state: ShortText | None = None


class ScheduleVersions(DefinitionQuery):
    """A query for the versions of a schedule, the newest first."""


class SchedulePreview(Query):
    """A query for the next scheduled times of a schedule or of a definition that is not stored."""

    key: ShortText | None = None
    id: UUID | None = None
    definition: Definition | None = None
    count: Annotated[Count, Field(le=MAX_PREVIEW)] = 10
    after: Instant | None = None  # defaults to the current time

    _check_reference = exactly_one_of("key", "id", "definition")


class ScheduleWhy(ScheduleRefQuery):
    """A query for the reason why a run did or did not start. `at` defaults to the last time."""

    at: Instant | None = None


class RunGet(Query):
    """A query for one run with its attempts."""

    run_id: ShortText


class RunList(ListQuery):
    """A query for the runs of the tenant or of one schedule, the newest first.

    `since` is inclusive and `until` is exclusive. Both refer to the scheduled time.
    With `until` alone, the list goes back to the end of the retention, and without both for a day.
    The filters `tag`, `owner` and `name` apply to the present version of the schedule.
    """

    key: ShortText | None = None
    id: UUID | None = None
    tag: ShortText | None = None
    owner: ShortText | None = None
    name: ShortText | None = None
    state: ShortText | None = None
    outcome: ShortText | None = None  # of the last attempt
    reason: ShortText | None = None
    since: Instant | None = None
    until: Instant | None = None


class ForecastGrouping(StrEnum):
    """The groups of a forecast. A run of a schedule with several tags counts in each of them."""

    POOL = "pool"
    TENANT = "tenant"
    TAG = "tag"


class RunForecast(Query):
    """A query for the number of runs in each hour, recorded for the past and planned from now on.

    `from` is the start of the first hour and `to` the end of the last one. Both refer to the due
    time, are extended to whole hours of UTC, and default to the next 24 hours.
    Tenants receive their own runs, and the operations tenant those of all tenants.
    """

    from_: Instant | None = Field(default=None, alias="from")
    to: Instant | None = None
    by: ForecastGrouping = ForecastGrouping.POOL


class DeadLetterList(DeadLetterFilter, ListQuery):
    """A query for dead letters, the newest first.

    `state` is open, replayed, resolved, discarded, superseded or all.
    """

    state: ShortText = "open"


class GroupList(ListQuery):
    """A query for failure groups, the latest failure first.

    `state` is open, muted, archived or all.
    """

    state: ShortText = "open"


class DeadLetterGet(Query):
    """A query for one dead letter with its payload and its replays."""

    id: UUID


class ReplayJobList(ListQuery):
    """A query for replay jobs, the newest first."""


class ReplayJobGet(Query):
    """A query for one replay job with its progress."""

    id: UUID


class ReplayJobItems(ListQuery):
    """A query for the dead letters of a replay job, in the order of the job."""

    id: UUID


class ParkedList(Query):
    """A query of an operator for the dead letters that cannot be stored, the oldest first."""

    limit: Annotated[Count, Field(le=MAX_PARKED)] = 20


class BreakerList(Query):
    """A query for breakers that are not closed, are forced, or closed within the last hour.

    A tenant receives its own breakers and those that hold all tenants now. The operations tenant
    receives every breaker.
    """


class CalendarGet(Query):
    """A query for one calendar, in its latest version or in `version`."""

    name: CalendarName
    version: Count | None = None


class CalendarList(Query):
    """A query for the calendars of the tenant, by name."""


class TenantUsage(Query):
    """A query for the quotas of the tenant, their use and what was refused within the last hour.

    The operations tenant receives all tenants in the order of their names. `after` is the cursor
    `next` of the last page.
    """

    limit: Annotated[Count, Field(le=MAX_USAGE_PAGE)] = MAX_USAGE_PAGE
    after: Tenant | None = None


SCHEDULE_QUERIES: Final[dict[str, type[Query]]] = {
    "schedule.get": ScheduleGet,
    "schedule.list": ScheduleList,
    "schedule.versions": ScheduleVersions,
    "schedule.preview": SchedulePreview,
    "schedule.why": ScheduleWhy,
    "run.get": RunGet,
    "run.list": RunList,
    "run.forecast": RunForecast,
}
DEAD_LETTER_QUERIES: Final[dict[str, type[Query]]] = {
    "dlq.list": DeadLetterList,
    "dlq.get": DeadLetterGet,
    "dlq.group.list": GroupList,
    "dlq.replay_job.list": ReplayJobList,
    "dlq.replay_job.get": ReplayJobGet,
    "dlq.replay_job.items": ReplayJobItems,
    "dlq.parked": ParkedList,
}
BREAKER_QUERIES: Final[dict[str, type[Query]]] = {"breaker.list": BreakerList}
CALENDAR_QUERIES: Final[dict[str, type[Query]]] = {
    "calendar.get": CalendarGet,
    "calendar.list": CalendarList,
}
TENANT_QUERIES: Final[dict[str, type[Query]]] = {"tenant.usage": TenantUsage}
QUERIES: Final[dict[str, type[Query]]] = {
    **SCHEDULE_QUERIES,
    **DEAD_LETTER_QUERIES,
    **BREAKER_QUERIES,
    **CALENDAR_QUERIES,
    **TENANT_QUERIES,
}
