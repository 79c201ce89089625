"""The queues to which Harebell sends replies (pure).

A reply carries JSON of its receiver's choice, so a free choice of the queue would let a tenant
place messages of Harebell in the queues of others.
"""

from typing import Final

from harebell.contract.amqp_names import DIRECT_REPLY
from harebell.contract.errors import InvalidInput
from harebell.contract.message import quoted
from harebell.domain.sender import IdentityMode

INVALID_REPLY_TO: Final = "invalid_reply_to"
GENERATED: Final = "amq.gen-"  # the broker generates these names, and any client may publish there
# A consumer of Harebell would take a reply in its queues for an internal message.
RESERVED: Final = ("harebell.", "amq.")


def can_reply_to(reply_to: str | None, tenant: str, mode: IdentityMode) -> bool:
    """Return whether `reply_to` names a direct reply or a queue of the tenant."""
    if not reply_to:
        return False
    if mode is IdentityMode.ROUTING_KEY and reply_to.startswith(GENERATED):
        return True
    return _is_direct(reply_to) or _belongs_to(reply_to, tenant)


def can_refuse_to(reply_to: str | None, login: str | None) -> bool:
    """Return whether a refusal may go to `reply_to`: a direct reply, or a queue of the login."""
    if not reply_to:
        return False
    return _is_direct(reply_to) or (bool(login) and _belongs_to(reply_to, str(login)))


def check_reply_to(reply_to: str | None, tenant: str, mode: IdentityMode) -> None:
    """Raise `InvalidInput` for a queue to which no reply may go. No queue is valid."""
    if reply_to and not can_reply_to(reply_to, tenant, mode):
        reason = (
            f"The reply queue must be {DIRECT_REPLY} or a queue whose name begins with "
            f"'{tenant}.', not {quoted(reply_to)}."
        )
        raise InvalidInput(reason, field="reply_to", code=INVALID_REPLY_TO)


def _is_direct(reply_to: str) -> bool:
    return reply_to == DIRECT_REPLY or reply_to.startswith(f"{DIRECT_REPLY}.")


def _belongs_to(reply_to: str, owner: str) -> bool:
    return reply_to.startswith(f"{owner}.") and not reply_to.startswith(RESERVED)
