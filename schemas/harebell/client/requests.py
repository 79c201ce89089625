"""What may be asked, as keyword arguments, and the bytes it becomes."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, TypeAlias, TypedDict
from uuid import UUID

import orjson

from harebell.contract.commands import MAX_BODY, SchedulePut
from harebell.contract.errors import InvalidInput
from harebell.contract.json_codec import encode

Schedule: TypeAlias = SchedulePut | Mapping[str, Any]


class ScheduleRef(TypedDict, total=False):
    """A schedule, by key or by id: exactly one."""

    key: str | None
    id: UUID | str | None


class CommandOptions(ScheduleRef, total=False):
    """What every command to a schedule takes. A repeated `request_id` gets the first answer."""

    note: str | None
    request_id: str | None


class ScheduleListFields(TypedDict, total=False):
    tag: str | None
    owner: str | None
    name: str | None
    state: str | None


class RunListFields(ScheduleRef, total=False):
    """`key` or `id` of a schedule, at most one; instants have an offset."""

    tag: str | None
    state: str | None
    outcome: str | None
    reason: str | None
    since: datetime | str | None
    until: datetime | str | None


class DeadLetterFields(TypedDict, total=False):
    """Which dead letters; `replayed`: whose run had been replayed before."""

    group: UUID | str | None
    key: str | None
    tag: str | None
    error: str | None
    since: datetime | str | None
    before: datetime | str | None
    replayed: bool | None


class DeadLetterListFields(DeadLetterFields, total=False):
    """`state`: open (when left out), replayed, resolved, dropped, edited or all."""

    state: str


class ReplayJobOptions(TypedDict, total=False):
    """How a replay of many goes: `canary` so many first; `rate` a second; a ratio from 0 to 1."""

    canary: int | None
    rate: float | None
    abort_on_failure_ratio: float | None
    pool: str | None
    dry_run: bool
    note: str | None


def schedule_bytes(schedule: Schedule) -> bytes:
    """A mapping goes as it is: Harebell checks it, and may know more fields than this client."""
    if isinstance(schedule, SchedulePut):
        return encode(schedule)
    try:
        return orjson.dumps(schedule)
    except orjson.JSONEncodeError as error:
        raise InvalidInput(f"cannot be written as JSON: {error}", code="not_json") from None


def check_size(body: bytes) -> bytes:
    """A broker closes the channel of a message that is far too large; refuse it before."""
    if len(body) > MAX_BODY:
        reason = f"the message has {len(body)} bytes, over {MAX_BODY}"
        raise InvalidInput(reason, code="too_large")
    return body
