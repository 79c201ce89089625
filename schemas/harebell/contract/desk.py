"""Which dead letters are meant: the filter that lists and replays of the desk share."""

from datetime import timedelta
from enum import StrEnum
from typing import Final, Literal
from uuid import UUID

from pydantic import model_validator

from harebell.contract.message import Message, StrictMessage, invalid
from harebell.contract.scalars import CheckedJson, Instant, ShortText

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
            raise invalid("invalid_selector", "says which: group, key, tag, error, ..., or all")
        return self
