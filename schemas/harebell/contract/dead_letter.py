"""The dead letter: a run that will not be tried again by itself, with its whole story."""

from datetime import timedelta
from enum import StrEnum
from typing import Any, Final, Literal
from uuid import UUID

from pydantic import model_validator

from harebell.contract.ids import RunId
from harebell.contract.message import Message, StrictMessage, empty_default, invalid
from harebell.contract.types import CheckedJson, Instant, ShortText


class AttemptRecord(Message):
    """One try of a run."""

    replay_number: int
    number: int
    started_at: Instant | None = None
    finished_at: Instant
    lease_holder: str | None = None
    outcome: str
    error_code: str | None = None
    error: str | None = None
    http_status: int | None = None


class DeadRun(Message):
    """A run that came to its end without success, and every attempt at it."""

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
    """A message that could not be understood, or that broke its consumer. Body in base64."""

    queue: str
    message_id: str | None = None
    type: str | None = None
    routing_key: str
    reason: str
    error: str | None = None
    dead_at: Instant
    headers: dict[str, Any] = empty_default(dict)
    body: str


TREND_PERIOD: Final = timedelta(
    hours=1
)  # of which a group tells the letters, and of the one before


class GroupState(StrEnum):
    """What a person has decided about a group of failures."""

    OPEN = "open"
    MUTED = "muted"  # until then it asks for nobody
    ARCHIVED = "archived"  # until it fails again


class ExportedDeadLetter(Message):
    """Of a letter as it is shown, what it can be kept from again; a body is in base64."""

    kind: Literal["run", "message"]
    payload: dict[str, CheckedJson]
    body: str | None = None


class DeadLetterFilter(StrictMessage):
    """Those that match all of what is given; `replayed`: whose run had been replayed before."""

    group: UUID | None = None
    key: ShortText | None = None
    tag: ShortText | None = None  # of the schedule, as it is now
    error: ShortText | None = None  # its code
    since: Instant | None = None  # when it died
    until: Instant | None = None
    replayed: bool | None = None


class OpenDeadLetterFilter(DeadLetterFilter):
    """Letters that are open: those that match, at least one thing given, or all of them."""

    all: bool = False

    @model_validator(mode="after")
    def _something(self) -> "OpenDeadLetterFilter":
        if not self.model_fields_set:
            raise invalid("invalid_filter", "says which: group, key, tag, error, ..., or all")
        return self
