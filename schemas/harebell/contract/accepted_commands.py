"""Accepted commands: the message from intake to the one service that applies them.

A message to the ticker may contain a batch: a JSON array of `AcceptedCommands` in the order of
their arrival. Each element has its own tenant, time and response.
"""

from enum import StrEnum
from typing import Final
from uuid import UUID

from harebell.contract.amqp_names import message_type
from harebell.contract.message import Message
from harebell.contract.responses import ErrorResponse
from harebell.contract.trace import TRACEPARENT, TRACESTATE
from harebell.contract.types import Instant, Json, instant_text

ACCEPTED_BATCH: Final = message_type("accepted_commands.batch")


class DelayedDelivery(StrEnum):
    """The delivery of a delayed message, from which intake made a `schedule.put`."""

    FIRST = "first"
    REPEATED = "repeated"  # the broker may have delivered the message before


class AcceptedCommand(Message):
    """One item of a message: its checked body, or the error response that intake decided."""

    index: int
    request_id: str | None = None  # null if nothing identifies a repeat of the command
    schedule_id: UUID | None = None  # of a command to one schedule
    body: Json = None
    rejection: ErrorResponse | None = None


class AcceptedCommands(Message):
    """The items of one command message. `single`: the body and the response are one object."""

    tenant: str
    verb: str
    actor: str | None = None
    accepted_at: Instant
    reply_to: str | None = None
    correlation_id: str | None = None
    traceparent: str | None = None  # of the span to which the runs of the commands refer
    tracestate: str | None = None
    single: bool
    delayed: DelayedDelivery | None = None  # null: a command of a user
    items: list[AcceptedCommand]

    @property
    def trace(self) -> dict[str, str] | None:
        """Return the JSON of the `TraceOrigin` of the message. Most messages have none."""
        if self.traceparent is None:
            return None
        state = {} if self.tracestate is None else {TRACESTATE: self.tracestate}
        at = instant_text(self.accepted_at)
        return {TRACEPARENT: self.traceparent, **state, "at": at}
