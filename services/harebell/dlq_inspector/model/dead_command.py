"""Dead commands: the messages of intake queues, which a replay publishes again."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from harebell.contract.redaction import REDACTED
from harebell.messaging.topology.bus import INTAKE

_REDACTED: Final = REDACTED.encode()


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadCommand:
    """A command as its sender published it. `sender` is the login that the broker verified.

    Harebell applies a command with the id of an applied one only once.
    """

    sender: str | None
    routing_key: str
    body: bytes
    type: str
    message_id: str


def command_of(payload: Mapping[str, Any], body: bytes) -> DeadCommand | None:
    """Return the command of a stored message, or None if the message was none.

    A command without its whole body is None too: the body is too long to store, or the dead letter
    has `***` in place of a literal secret.
    """
    queue = payload.get("queue")
    is_command = queue == INTAKE.name or str(queue).startswith(f"{INTAKE.name}.")
    if not is_command or payload.get("size") != len(body) or _REDACTED in body:
        return None
    return DeadCommand(
        sender=payload.get("user_id"),
        routing_key=str(payload["routing_key"]),
        body=body,
        type=payload.get("type") or "",
        message_id=payload.get("message_id") or "",
    )
