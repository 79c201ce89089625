"""Queries: read-only questions with a `reply_to`. Every list is bounded and pages by cursor."""

from typing import Annotated, Final
from uuid import UUID

from pydantic import Field, model_validator

from harebell.contract.dead_letter import DeadLetterFilter
from harebell.contract.message import StrictMessage, invalid
from harebell.contract.schedule import Definition
from harebell.contract.types import Instant, ShortText

MAX_PAGE: Final = 500  # rows
MAX_PREVIEW: Final = 100  # instants


class Query(StrictMessage):
    pass


class ScheduleRefQuery(Query):
    key: ShortText | None = None
    id: UUID | None = None

    @model_validator(mode="after")
    def _one_name(self) -> "ScheduleRefQuery":
        if (self.key is None) == (self.id is None):
            raise invalid("invalid_reference", "has exactly one of key, id")
        return self


class ListQuery(Query):
    limit: Annotated[int, Field(ge=1, le=MAX_PAGE)] = 50
    after: ShortText | None = None  # the cursor: `next` of the page before


class ScheduleGet(ScheduleRefQuery):
    """A schedule as it stands: its definition, state, and when it runs next."""


class ScheduleList(ListQuery):
    """The tenant's schedules, newest first."""

    tag: ShortText | None = None
    owner: ShortText | None = None
    name: ShortText | None = None
    state: ShortText | None = None


class ScheduleVersions(ScheduleRefQuery):
    """Every version, newest first, with who made it, when it takes effect, and its fate."""


class SchedulePreview(Query):
    """The next instants, of a schedule that is stored or of one that is not yet."""

    key: ShortText | None = None
    id: UUID | None = None
    definition: Definition | None = None
    count: Annotated[int, Field(ge=1, le=MAX_PREVIEW)] = 10
    after: Instant | None = None  # now, where it is not given

    @model_validator(mode="after")
    def _one_source(self) -> "SchedulePreview":
        if sum(each is not None for each in (self.key, self.id, self.definition)) != 1:
            raise invalid("invalid_reference", "has exactly one of key, id, definition")
        return self


class ScheduleWhy(ScheduleRefQuery):
    """What became of an instant, or what will, and why; of the last one where none is given."""

    at: Instant | None = None


class RunGet(Query):
    """A run and its attempts."""

    run_id: ShortText


class RunList(ListQuery):
    """Newest first. `key` or `id` of a schedule; all runs of the tenant without."""

    key: ShortText | None = None
    id: UUID | None = None
    tag: ShortText | None = None  # of the schedule, as it is now
    state: ShortText | None = None
    outcome: ShortText | None = None  # of the last attempt
    reason: ShortText | None = None
    since: Instant | None = None
    until: Instant | None = None


class DeadLetterList(DeadLetterFilter, ListQuery):
    """Newest first; `state` open, replayed, resolved, dropped, edited or all."""

    state: ShortText = "open"


class GroupList(ListQuery):
    """Groups of the same failure, the latest failure first; `state` open, muted, archived, all."""

    state: ShortText = "open"


class DeadLetterGet(Query):
    """One dead letter with its whole story."""

    id: UUID


class ReplayJobList(ListQuery):
    """Replays that were started, newest first."""


class ReplayJobGet(Query):
    """One of them: how far it is, and what came of it."""

    id: UUID


class ReplayJobItems(ListQuery):
    """Its letters in their order, each with what became of it."""

    id: UUID


class BreakerList(Query):
    """Circuit breakers that are open or half open, are forced, or have closed of late."""


SCHEDULE_QUERIES: Final[dict[str, type[Query]]] = {
    "schedule.get": ScheduleGet,
    "schedule.list": ScheduleList,
    "schedule.versions": ScheduleVersions,
    "schedule.preview": SchedulePreview,
    "schedule.why": ScheduleWhy,
    "run.get": RunGet,
    "run.list": RunList,
}
DEAD_LETTER_QUERIES: Final[dict[str, type[Query]]] = {
    "dlq.list": DeadLetterList,
    "dlq.get": DeadLetterGet,
    "dlq.group.list": GroupList,
    "dlq.replay_job.list": ReplayJobList,
    "dlq.replay_job.get": ReplayJobGet,
    "dlq.replay_job.items": ReplayJobItems,
}
BREAKER_QUERIES: Final[dict[str, type[Query]]] = {"breaker.list": BreakerList}
QUERIES: Final[dict[str, type[Query]]] = {
    **SCHEDULE_QUERIES,
    **DEAD_LETTER_QUERIES,
    **BREAKER_QUERIES,
}
