"""Queries as the store answers them: checked, bounded, and continued from a cursor. Pure."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final, Self, TypeAlias, TypeVar
from uuid import UUID

from harebell.contract.codec import decode
from harebell.contract.commands import MAX_ITEM
from harebell.contract.errors import Malformed
from harebell.contract.identity import RunKey, schedule_id
from harebell.contract.message import parse, shown
from harebell.contract.queries import RunGet, RunList, ScheduleGet, ScheduleList
from harebell.contract.scalars import Json
from harebell.kernel.ledger import RunState, ScheduleState

RECENT: Final = timedelta(hours=24)  # of runs that are listed when nothing says since when

E = TypeVar("E", bound=StrEnum)


@dataclass(frozen=True, slots=True)
class Cursor:
    """The last row of a page; the next page lies behind it."""

    at: datetime
    id: UUID

    def __str__(self) -> str:
        return f"{self.at.isoformat()}/{self.id}"

    @classmethod
    def parse(cls, text: str) -> Self:
        at, _, id_ = text.partition("/")
        try:
            cursor = cls(datetime.fromisoformat(at), UUID(id_))
        except ValueError:
            cursor = None
        if cursor is None or cursor.at.tzinfo is None:
            raise Malformed("is not the `next` of a page", field="after", code="invalid_cursor")
        return cursor


@dataclass(frozen=True, slots=True)
class OneSchedule:
    id: UUID
    field: str  # by which it was named


@dataclass(frozen=True, slots=True)
class OneRun:
    key: RunKey


@dataclass(frozen=True, slots=True)
class Schedules:
    """Newest first."""

    tag: str | None
    state: ScheduleState | None
    after: Cursor | None
    limit: int


@dataclass(frozen=True, slots=True)
class Runs:
    """Newest first. `since` bounds the days of the ledger that are read."""

    schedule_id: UUID | None
    state: RunState | None
    since: datetime
    after: Cursor | None
    limit: int


Question: TypeAlias = OneSchedule | OneRun | Schedules | Runs


def read(tenant: str, verb: str, body: bytes, *, now: datetime) -> Question:
    """Raises `Malformed`."""
    if verb not in _READERS:
        reason = f"there is no query {shown(verb)}; there are {', '.join(_READERS)}"
        raise Malformed(reason, code="unknown_query")
    if len(body) > MAX_ITEM:
        raise Malformed(f"the message has {len(body)} bytes, over {MAX_ITEM}", code="too_large")
    value = decode(body)
    if not isinstance(value, dict):
        raise Malformed(f"must be an object; got {shown(value)}")
    return _READERS[verb](tenant, value, now)


def _one_schedule(tenant: str, value: Json, _: datetime) -> OneSchedule:
    query = parse(ScheduleGet, value)
    if query.key is not None:
        return OneSchedule(schedule_id(tenant, query.key), "key")
    assert query.id is not None  # noqa: S101  # the model has exactly one of them
    return OneSchedule(query.id, "id")


def _schedules(_: str, value: Json, __: datetime) -> Schedules:
    query = parse(ScheduleList, value)
    state = _state(ScheduleState, query.state)
    return Schedules(query.tag, state, _cursor(query.after), query.limit)


def _one_run(_: str, value: Json, __: datetime) -> OneRun:
    return OneRun(RunKey.parse(parse(RunGet, value).run_id))


def _runs(tenant: str, value: Json, now: datetime) -> Runs:
    query = parse(RunList, value)
    if query.key is not None and query.id is not None:
        raise Malformed("has at most one of key, id", code="invalid_reference")
    schedule = query.id if query.key is None else schedule_id(tenant, query.key)
    state = _state(RunState, query.state)
    since = query.since or now - RECENT
    return Runs(schedule, state, since, _cursor(query.after), query.limit)


_READERS: Final[dict[str, Callable[[str, Json, datetime], Question]]] = {
    "schedule.get": _one_schedule,
    "schedule.list": _schedules,
    "run.get": _one_run,
    "run.list": _runs,
}


def _state(states: type[E], text: str | None) -> E | None:
    try:
        return None if text is None else states(text)
    except ValueError:
        reason = f"must be one of {', '.join(states)}; got {shown(text)}"
        raise Malformed(reason, field="state", code="invalid_state") from None


def _cursor(text: str | None) -> Cursor | None:
    return None if text is None else Cursor.parse(text)
