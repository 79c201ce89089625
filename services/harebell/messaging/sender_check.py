"""The check of commands and queries: the sender, the route and the reply queue of each delivery."""

from hashlib import sha256
from typing import Final

import structlog

from harebell.contract.amqp_names import tenant_exchange
from harebell.contract.errors import NotAllowed, Rejected
from harebell.contract.events import ScheduleEventData, make_event
from harebell.contract.json_codec import encode
from harebell.contract.message import Message
from harebell.contract.responses import error_response
from harebell.domain.reply_queue import INVALID_REPLY_TO, can_refuse_to, check_reply_to
from harebell.domain.sender import (
    REPLAYERS,
    Route,
    Sender,
    SenderPolicy,
    check_route,
    identify,
    parse_routing_key,
)
from harebell.messaging import metrics
from harebell.messaging.acknowledge import Delivery
from harebell.messaging.event_publisher import OutgoingEvent, RejectionEvents
from harebell.messaging.received_properties import Undecodable
from harebell.messaging.replies import ReplySender, reply
from harebell.messaging.topology.bus import tenant_of_queue
from harebell.runtime.clock import Clock

REJECTED: Final = "schedule.rejected"
DEATHS: Final = "x-death"  # the header of a message that a queue has dead-lettered
SENDER: Final = "harebell-sender"  # the header with the login of the sender of a replayed command
DIGEST_LENGTH: Final = 32  # hexadecimal digits

log = structlog.get_logger()


class SenderCheck:
    """The check of deliveries before any other code reads them, and the refusal of the others.

    A refused delivery changes no row. Its refusal is counted and logged.
    """

    def __init__(
        self,
        *,
        replies: ReplySender,
        clock: Clock,
        policy: SenderPolicy,
        rejection_events: RejectionEvents,
    ) -> None:
        self._replies = replies
        self._clock = clock
        self._policy = policy
        self._rejection_events = rejection_events

    def sender_of(self, delivery: Delivery, shared_exchange: str) -> Sender:
        """Return the sender. Raise `Rejected` with the code of the refusal.

        The message of a queue of one tenant must come through the exchange of this tenant, and
        that of another queue through `shared_exchange`.
        """
        route = route_of(delivery)
        owner = tenant_of_queue(delivery.queue)
        check_route(route, shared_exchange if owner is None else tenant_exchange(owner))
        sender = identify(route, self._policy, owner=owner)
        check_reply_to(delivery.message.reply_to, sender.tenant, self._policy.mode)
        return sender

    async def refuse(self, delivery: Delivery, error: Rejected) -> None:
        """Count and log the refusal, and answer it if its sender alone receives the answer.

        An invalid reply queue has an event and no answer. A refused sender has no event, because
        an event could become the next refused message.
        """
        record_refusal(delivery, error)
        message = delivery.message
        if error.code == INVALID_REPLY_TO:
            await self._rejection_events.publish([self._event(delivery, error)])
        elif can_refuse_to(message.reply_to, message.user_id):
            self._send(delivery, error_response(error), receiver=message.user_id or "")

    async def answer(self, delivery: Delivery, error: Rejected, *, shared_exchange: str) -> None:
        """Send the error of a delivery to its sender."""
        try:
            sender = self.sender_of(delivery, shared_exchange)
        except (Rejected, Undecodable):
            await self.refuse(delivery, error)
        else:
            self.reply(delivery, sender, error_response(error))

    def reply(self, delivery: Delivery, sender: Sender, response: Message) -> None:
        """Send the response of a delivery to its sender, if the sender asks for one."""
        if delivery.message.reply_to:
            self._send(delivery, response, receiver=sender.login or sender.tenant)

    def _send(self, delivery: Delivery, response: Message, *, receiver: str) -> None:
        outgoing = reply(
            delivery.message.reply_to or "",
            delivery.message.correlation_id,
            encode(response),
            message_id=stable_message_id(delivery),
        )
        self._replies.send(receiver, outgoing)

    def _event(self, delivery: Delivery, error: Rejected) -> OutgoingEvent:
        tenant, verb = parse_routing_key(delivery.routing_key)
        detail = error_response(error).error
        data = ScheduleEventData(
            actor=delivery.message.user_id,
            error=detail.model_dump(mode="json", exclude_none=True),
        )
        id_ = f"{digest(stable_message_id(delivery).encode())}/{INVALID_REPLY_TO}"
        event = make_event(tenant, REJECTED, data, id_=id_, subject=verb, at=self._clock.now())
        return OutgoingEvent(tenant, REJECTED, event)


def is_foreign(delivery: Delivery, expected_exchange: str) -> bool:
    """Return whether an internal message took a foreign route, and count such a message."""
    try:
        check_route(route_of(delivery), expected_exchange)
    except NotAllowed as error:
        record_refusal(delivery, error)
        return True
    return False


def record_refusal(delivery: Delivery, error: Rejected) -> None:
    """Count and log a refused delivery."""
    metrics.REFUSED_MESSAGES.labels(error.code).inc()
    log.info(
        "message refused",
        queue=delivery.queue,
        exchange=delivery.message.exchange,
        routing_key=delivery.routing_key,
        user_id=delivery.message.user_id,
        error=error.code,
        reason=error.reason,
    )


def route_of(delivery: Delivery) -> Route:
    """Return the route of a delivery. That of a replayed command has the login of its sender."""
    message = delivery.message
    user_id = message.user_id
    if user_id in REPLAYERS:
        sender = message.headers.get(SENDER)
        user_id = sender if isinstance(sender, str) else None
    return Route(
        exchange=message.exchange or "",
        routing_key=delivery.routing_key,
        user_id=user_id,
        was_dead_lettered=DEATHS in message.headers,
    )


def stable_message_id(delivery: Delivery) -> str:
    """Return the message id, or an id that is the same for each repeat of the message."""
    return delivery.message_id or digest(delivery.routing_key.encode(), delivery.body)


def digest(*parts: bytes) -> str:
    """Return a short digest of the parts."""
    return sha256(b"\0".join(parts)).hexdigest()[:DIGEST_LENGTH]
