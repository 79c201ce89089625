"""Dead letters: the messages that report them, their exports and their filters."""

from datetime import timedelta
from enum import StrEnum
from typing import Any, Final, Literal
from uuid import UUID

from pydantic import model_validator

from harebell.contract.ids import RunId
from harebell.contract.message import Message, StrictMessage, empty_default
from harebell.contract.types import CheckedJson, Instant, ShortText, check_filter

TREND_PERIOD: Final = timedelta(hours=1)  # a failure group compares the last two periods


class AttemptRecord(Message):
    """One completed attempt of a dead run."""

    replay_number: int
    number: int
    started_at: Instant | None = None
    finished_at: Instant
    lease_holder: str | None = None
    outcome: str
    error_code: str | None = None
    error: str | None = None
    http_status: int | None = None
    is_failed_probe: bool | None = None  # true: of a breaker, without using an attempt


class DeadRun(Message):
    """A run that Harebell no longer retries, with every attempt."""

    run_id: RunId
    tenant: str
    schedule_id: UUID
    scheduled_for: Instant
    key: str | None = None
    version: int
    replay_number: int
    reason: str
    error_code: str
    error: str | None = None
    dead_at: Instant
    target: dict[str, Any]
    attempts: list[AttemptRecord]


class DeadMessage(Message):
    """A message that no service can process. `body` is in base64.

    `user_id` is the login of the publisher, which the broker has verified.
    `raw_properties` is in base64 too, with the flags of the AMQP properties and their list. A
    message whose headers cannot be decoded has it instead of `headers`.
    """

    queue: str
    tenant: str | None = None  # of a message whose routing key names no tenant
    message_id: str | None = None
    user_id: str | None = None
    type: str | None = None
    routing_key: str
    reason: str
    error: str | None = None
    dead_at: Instant
    headers: dict[str, Any] = empty_default(dict)
    raw_properties: str | None = None
    body: str


class GroupState(StrEnum):
    """The states of a failure group, as a person set them."""

    OPEN = "open"
    MUTED = "muted"  # hidden from the open groups until a time
    ARCHIVED = "archived"  # hidden from the open groups until the next failure


class ExportedDeadLetter(Message):
    """The part of a dead letter that an import needs. `body` is in base64."""

    kind: Literal["run", "message"]
    payload: dict[str, CheckedJson]
    body: str | None = None


class DeadLetterFilter(StrictMessage):
    """A filter whose fields must all match. `replayed` selects runs with an earlier replay.

    `since` is inclusive and `until` is exclusive. Both refer to the time of death.
    """

    group: UUID | None = None
    key: ShortText | None = None
    tag: ShortText | None = None  # a present tag of the schedule
    error: ShortText | None = None  # the error code
    since: Instant | None = None
    until: Instant | None = None
    replayed: bool | None = None


class OpenDeadLetterFilter(DeadLetterFilter):
    """A filter of open dead letters with at least one field, or `all` of them."""

    all: bool = False

    _check_fields = model_validator(mode="after")(check_filter)
