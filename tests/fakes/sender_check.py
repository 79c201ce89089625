"""The sender check of unit tests, with the mode of the local stack."""

from typing import Any, cast

from harebell.domain.sender import IdentityMode, SenderPolicy
from harebell.messaging.event_publisher import RejectionEvents
from harebell.messaging.publisher import Publisher
from harebell.messaging.replies import ReplySender
from harebell.messaging.sender_check import SenderCheck


def open_sender_check(
    publisher: Publisher,
    clock: object,
    *,
    replies: ReplySender,
    mode: IdentityMode = IdentityMode.ROUTING_KEY,
) -> tuple[SenderCheck, RejectionEvents]:
    """Return a sender check and the publisher of its rejection events."""
    rejection_events = RejectionEvents(publisher)
    sender_check = SenderCheck(
        replies=replies,
        clock=cast("Any", clock),
        policy=SenderPolicy(mode=mode),
        rejection_events=rejection_events,
    )
    return sender_check, rejection_events
