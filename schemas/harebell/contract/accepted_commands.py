"""Accepted commands: the message from intake to the one service that applies them."""

from uuid import UUID

from harebell.contract.message import Message
from harebell.contract.responses import ErrorResponse
from harebell.contract.types import Instant, Json


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
    single: bool
    items: list[AcceptedCommand]
