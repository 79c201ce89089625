"""Queries as the store answers them: checked, bounded, and continued from a cursor. Pure."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final, TypeAlias, TypeVar
from uuid import UUID

from harebell.contract.commands import MAX_ITEM
from harebell.contract.errors import InvalidInput
from harebell.contract.ids import RunKey, schedule_id
from harebell.contract.json_codec import decode
from harebell.contract.message import parse, quoted
from harebell.contract.queries import (
    BreakerList,
    RunGet,
    RunList,
    ScheduleGet,
    ScheduleList,
    SchedulePreview,
    ScheduleVersions,
    ScheduleWhy,
)
from harebell.contract.schedule import Definition
from harebell.contract.types import Json
from harebell.domain.page_cursor import PageCursor
from harebell.domain.run_states import RunState, ScheduleState
from harebell.intake.commands.check import check_operations

RECENT: Final = timedelta(hours=24)  # of runs that are listed when nothing says since when
NO_SCHEDULE_ID: Final = UUID(int=0)  # in place of the id of a schedule that has none yet

E = TypeVar("E", bound=StrEnum)


@dataclass(frozen=True, slots=True)
class StoredSchedule:
    id: UUID
    field: str  # by which it was named


@dataclass(frozen=True, slots=True)
class OneRun:
    key: RunKey


@dataclass(frozen=True, slots=True)
class Schedules:
    """Newest first."""

    tag: str | None
    owner: str | None
    name: str | None
    state: ScheduleState | None
    after: PageCursor | None
    limit: int


@dataclass(frozen=True, slots=True)
class Runs:
    """Newest first. `since` bounds the days of the ledger that are read."""

    schedule_id: UUID | None
    tag: str | None
    state: RunState | None
    outcome: str | None
    reason: str | None
    since: datetime
    until: datetime | None
    after: PageCursor | None
    limit: int


@dataclass(frozen=True, slots=True)
class Versions:
    of: StoredSchedule


@dataclass(frozen=True, slots=True)
class Preview:
    """`of` a schedule that is stored, or of a definition that is not yet, by its would-be id."""

    of: StoredSchedule | Definition
    schedule_id: UUID
    after: datetime | None
    count: int


@dataclass(frozen=True, slots=True)
class WhyNot:
    """`at` None: the last instant up to now."""

    of: StoredSchedule
    at: datetime | None


@dataclass(frozen=True, slots=True)
class Breakers:
    """All that are on record."""


Question: TypeAlias = (
    StoredSchedule | OneRun | Schedules | Runs | Versions | Preview | WhyNot | Breakers
)


def parse_query(tenant: str, verb: str, body: bytes, *, now: datetime) -> Question:
    """Raises `Malformed`."""
    if verb not in _READERS:
        reason = f"there is no query {quoted(verb)}; there are {', '.join(_READERS)}"
        raise InvalidInput(reason, code="unknown_query")
    if len(body) > MAX_ITEM:
        raise InvalidInput(f"the message has {len(body)} bytes, over {MAX_ITEM}", code="too_large")
    value = decode(body)
    if not isinstance(value, dict):
        raise InvalidInput(f"must be an object; got {quoted(value)}")
    return _READERS[verb](tenant, value, now)


def _named(tenant: str, key: str | None, id_: UUID | None) -> StoredSchedule:
    if key is not None:
        return StoredSchedule(schedule_id(tenant, key), "key")
    assert id_ is not None  # noqa: S101  # the model has exactly one of them
    return StoredSchedule(id_, "id")


def _one_schedule(tenant: str, value: Json, _: datetime) -> StoredSchedule:
    query = parse(ScheduleGet, value)
    return _named(tenant, query.key, query.id)


def _schedules(_: str, value: Json, __: datetime) -> Schedules:
    query = parse(ScheduleList, value)
    state = _state(ScheduleState, query.state)
    after = _cursor(query.after)
    return Schedules(query.tag, query.owner, query.name, state, after, query.limit)


def _versions(tenant: str, value: Json, _: datetime) -> Versions:
    query = parse(ScheduleVersions, value)
    return Versions(_named(tenant, query.key, query.id))


def _preview(tenant: str, value: Json, _: datetime) -> Preview:
    query = parse(SchedulePreview, value)
    if query.definition is None:
        stored = _named(tenant, query.key, query.id)
        return Preview(stored, stored.id, query.after, query.count)
    key = query.definition.key
    would_be = NO_SCHEDULE_ID if key is None else schedule_id(tenant, key)
    return Preview(query.definition, would_be, query.after, query.count)


def _why(tenant: str, value: Json, _: datetime) -> WhyNot:
    query = parse(ScheduleWhy, value)
    return WhyNot(_named(tenant, query.key, query.id), query.at)


def _one_run(_: str, value: Json, __: datetime) -> OneRun:
    return OneRun(RunKey.parse(parse(RunGet, value).run_id))


def _runs(tenant: str, value: Json, now: datetime) -> Runs:
    query = parse(RunList, value)
    if query.key is not None and query.id is not None:
        raise InvalidInput("has at most one of key, id", code="invalid_reference")
    return Runs(
        schedule_id=query.id if query.key is None else schedule_id(tenant, query.key),
        tag=query.tag,
        state=_state(RunState, query.state),
        outcome=query.outcome,
        reason=query.reason,
        since=query.since or (query.until or now) - RECENT,
        until=query.until,
        after=_cursor(query.after),
        limit=query.limit,
    )


def _breakers(tenant: str, value: Json, _: datetime) -> Breakers:
    parse(BreakerList, value)
    check_operations(tenant, "breaker.list")
    return Breakers()


_READERS: Final[dict[str, Callable[[str, Json, datetime], Question]]] = {
    "schedule.get": _one_schedule,
    "schedule.list": _schedules,
    "schedule.versions": _versions,
    "schedule.preview": _preview,
    "schedule.why": _why,
    "run.get": _one_run,
    "run.list": _runs,
    "breaker.list": _breakers,
}


def _state(states: type[E], text: str | None) -> E | None:
    try:
        return None if text is None else states(text)
    except ValueError:
        reason = f"must be one of {', '.join(states)}; got {quoted(text)}"
        raise InvalidInput(reason, field="state", code="invalid_state") from None


def _cursor(text: str | None) -> PageCursor | None:
    return None if text is None else PageCursor.parse(text)
