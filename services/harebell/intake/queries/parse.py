"""The parser of queries: a message in, a checked query of the contract out (pure)."""

from enum import StrEnum
from typing import Final, TypeAlias

from harebell.contract.commands import MAX_ITEM
from harebell.contract.errors import InvalidInput
from harebell.contract.ids import RunKey
from harebell.contract.json_codec import decode
from harebell.contract.message import parse, quoted
from harebell.contract.queries import (
    BreakerList,
    CalendarGet,
    CalendarList,
    ListQuery,
    RunForecast,
    RunGet,
    RunList,
    ScheduleGet,
    ScheduleList,
    SchedulePreview,
    ScheduleVersions,
    ScheduleWhy,
    TenantUsage,
)
from harebell.domain.page_cursor import PageCursor
from harebell.domain.run_states import RunState, ScheduleState

IntakeQuery: TypeAlias = (
    ScheduleGet
    | ScheduleList
    | ScheduleVersions
    | SchedulePreview
    | ScheduleWhy
    | RunGet
    | RunList
    | RunForecast
    | BreakerList
    | CalendarGet
    | CalendarList
    | TenantUsage
)

INTAKE_QUERIES: Final[dict[str, type[IntakeQuery]]] = {
    "schedule.get": ScheduleGet,
    "schedule.list": ScheduleList,
    "schedule.versions": ScheduleVersions,
    "schedule.preview": SchedulePreview,
    "schedule.why": ScheduleWhy,
    "run.get": RunGet,
    "run.list": RunList,
    "run.forecast": RunForecast,
    "breaker.list": BreakerList,
    "calendar.get": CalendarGet,
    "calendar.list": CalendarList,
    "tenant.usage": TenantUsage,
}


def parse_query(verb: str, body: bytes) -> IntakeQuery:
    """Return the query. Raise `InvalidInput` before any statement is sent."""
    if verb not in INTAKE_QUERIES:
        reason = f"The query must be one of {', '.join(INTAKE_QUERIES)}, not {quoted(verb)}."
        raise InvalidInput(reason, code="unknown_query")
    if len(body) > MAX_ITEM:
        reason = f"The message must have at most {MAX_ITEM} bytes, not {len(body)}."
        raise InvalidInput(reason, code="too_large")
    value = decode(body)
    if not isinstance(value, dict):
        raise InvalidInput(f"The query must be an object, not {quoted(value)}.")
    query: IntakeQuery = parse(INTAKE_QUERIES[verb], value)
    _check(query)
    return query


def _check(query: IntakeQuery) -> None:
    if isinstance(query, ListQuery) and query.after is not None:
        PageCursor.parse(query.after)
    if isinstance(query, ScheduleList):
        _check_state(ScheduleState, query.state)
    if isinstance(query, RunList):
        _check_state(RunState, query.state)
        if query.key is not None and query.id is not None:
            reason = "The query must have at most one of key and id, not both of them."
            raise InvalidInput(reason, code="invalid_reference")
    if isinstance(query, RunGet):
        RunKey.parse(query.run_id)


def _check_state(states: type[StrEnum], state: str | None) -> None:
    if state is not None and state not in set(states):
        reason = f"The state must be one of {', '.join(states)}, not {quoted(state)}."
        raise InvalidInput(reason, field="state", code="invalid_state")
