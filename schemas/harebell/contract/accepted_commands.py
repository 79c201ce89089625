"""Changes: commands that intake has checked, on their way to the one service that applies them."""

from uuid import UUID

from harebell.contract.message import Message
from harebell.contract.responses import ErrorResponse
from harebell.contract.types import Instant, Json


class AcceptedCommand(Message):
    """One command: its body, checked, or the refusal that it met."""

    index: int
    request_id: str | None = None  # None where nothing makes a retry recognisable
    schedule_id: UUID | None = None  # of commands to a schedule
    body: Json = None
    rejection: ErrorResponse | None = None


class AcceptedCommands(Message):
    """One message of a user's. `single`: the body was an object, and so is the answer."""

    tenant: str
    verb: str
    actor: str | None = None
    accepted_at: Instant
    reply_to: str | None = None
    correlation_id: str | None = None
    single: bool
    items: list[AcceptedCommand]
