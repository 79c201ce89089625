"""The keyword arguments of client methods, and the bytes of a schedule."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, TypeAlias, TypedDict
from uuid import UUID

import orjson

from harebell.contract.commands import MAX_BODY, SchedulePut
from harebell.contract.errors import InvalidInput
from harebell.contract.json_codec import encode
from harebell.contract.queries import ForecastGrouping

Schedule: TypeAlias = SchedulePut | Mapping[str, Any]


class ScheduleRef(TypedDict, total=False):
    """One schedule, by exactly one of key and id."""

    key: str | None
    id: UUID | str | None


class CommandOptions(ScheduleRef, total=False):
    """The arguments of every command to one schedule.

    A repeated command with the same `request_id` receives the first response again.
    """

    note: str | None
    request_id: str | None


class ScheduleListFields(TypedDict, total=False):
    """The filter of `Client.schedules`."""

    tag: str | None
    owner: str | None
    name: str | None
    state: str | None


class RunListFields(ScheduleRef, total=False):
    """The filter of `Client.runs`, with at most one of key and id. Times have an offset.

    `since` is inclusive and `until` is exclusive.
    With `until` alone, the list goes back for 30 days, and without both for 24 hours.
    """

    tag: str | None
    owner: str | None
    name: str | None
    state: str | None
    outcome: str | None
    reason: str | None
    since: datetime | str | None
    until: datetime | str | None


class ForecastFields(TypedDict, total=False):
    """The range and the groups of `Client.forecast`. `by` is pool, tenant or tag."""

    from_time: datetime | str | None
    to: datetime | str | None
    by: ForecastGrouping | str


class DeadLetterFields(TypedDict, total=False):
    """A filter of dead letters. `replayed` selects runs with an earlier replay.

    `since` is inclusive and `until` is exclusive.
    """

    group: UUID | str | None
    key: str | None
    tag: str | None
    error: str | None
    since: datetime | str | None
    until: datetime | str | None
    replayed: bool | None


class DeadLetterListFields(DeadLetterFields, total=False):
    """The filter of `Client.dead_letters`.

    `state` is open (the default), replayed, resolved, discarded, superseded or all.
    """

    state: str


class ReplayJobOptions(TypedDict, total=False):
    """The options of a replay job.

    `canary` is a number of dead letters, `rate` a number per second, and `abort_on_failure_ratio` a
    number from 0 to 1.
    """

    canary: int | None
    rate: float | None
    abort_on_failure_ratio: float | None
    pool: str | None
    dry_run: bool
    note: str | None


def schedule_bytes(schedule: Schedule) -> bytes:
    """Return the body of a schedule.

    The client does not check a mapping, because Harebell may know more fields than this client.
    """
    if isinstance(schedule, SchedulePut):
        return encode(schedule)
    try:
        return orjson.dumps(schedule)
    except orjson.JSONEncodeError as error:
        reason = f"The schedule must be a JSON value, but it is not: {error}."
        raise InvalidInput(reason, code="not_json") from None


def check_size(body: bytes) -> bytes:
    """Return the body. Raise `InvalidInput` for a body for which the broker closes the channel."""
    if len(body) > MAX_BODY:
        reason = f"The message must have at most {MAX_BODY} bytes, not {len(body)}."
        raise InvalidInput(reason, code="too_large")
    return body
