"""Queries: read-only questions with a `reply_to`. Every list is bounded and pages by cursor."""

from typing import Annotated, Final
from uuid import UUID

from pydantic import Field, model_validator

from harebell.contract.message import Command, fault
from harebell.contract.scalars import Instant, ShortText

MAX_PAGE: Final = 500  # rows


class Query(Command):
    pass


class ByName(Query):
    key: ShortText | None = None
    id: UUID | None = None

    @model_validator(mode="after")
    def _one_name(self) -> "ByName":
        if (self.key is None) == (self.id is None):
            raise fault("invalid_reference", "has exactly one of key, id")
        return self


class Listing(Query):
    limit: Annotated[int, Field(ge=1, le=MAX_PAGE)] = 50
    after: ShortText | None = None  # the cursor: `next` of the page before


class ScheduleGet(ByName):
    """A schedule as it stands: its definition, state, and when it runs next."""


class ScheduleList(Listing):
    """The tenant's schedules, newest first."""

    tag: ShortText | None = None
    state: ShortText | None = None


class RunGet(Query):
    """A run and its attempts."""

    run_id: ShortText


class RunList(Listing):
    """Newest first. `key` or `id` of a schedule; all runs of the tenant without."""

    key: ShortText | None = None
    id: UUID | None = None
    state: ShortText | None = None
    since: Instant | None = None


class DlqList(Listing):
    """Newest first; `state` open, replayed, resolved, dropped or all."""

    state: ShortText = "open"
    key: ShortText | None = None


class DlqShow(Query):
    """One dead letter with its whole story."""

    id: UUID


QUERIES: Final[dict[str, type[Query]]] = {
    "schedule.get": ScheduleGet,
    "schedule.list": ScheduleList,
    "run.get": RunGet,
    "run.list": RunList,
    "dlq.list": DlqList,
    "dlq.show": DlqShow,
}
