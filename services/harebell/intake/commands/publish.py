"""The messages that intake publishes: accepted commands, and replies and events of rejections."""

from collections.abc import Iterator, Mapping, Sequence

from pamqp.common import FieldValue

from harebell.contract.accepted_commands import ACCEPTED_BATCH, AcceptedCommands
from harebell.contract.amqp_names import (
    CHANGES,
    CHANGES_BREAKER,
    CHANGES_DLQ,
    CHANGES_REPORT,
    CHANGES_SCHEDULE,
    message_type,
)
from harebell.contract.breakers import BREAKER_COMMANDS
from harebell.contract.commands import DEAD_LETTER_COMMANDS, REPORT_COMMANDS
from harebell.contract.events import ScheduleEventData, make_event
from harebell.contract.json_codec import encode, encode_all
from harebell.intake.commands.check import CheckResult, RejectedItem
from harebell.messaging.event_publisher import OutgoingEvent
from harebell.messaging.publisher import OutgoingMessage
from harebell.messaging.replies import reply
from harebell.messaging.sender_check import REJECTED, digest


def is_for_ticker(commands: AcceptedCommands) -> bool:
    """Return whether the ticker applies the commands in its one sequence."""
    return _changes_key(commands.verb) == CHANGES_SCHEDULE


def grants_credits(commands: AcceptedCommands) -> bool:
    """Return whether the service that applies the commands grants credits to intake.

    Only operators give commands about breakers.
    """
    return _changes_key(commands.verb) != CHANGES_BREAKER


def accepted_commands_message(
    commands: AcceptedCommands, *, message_id: str, headers: Mapping[str, FieldValue] | None = None
) -> OutgoingMessage:
    """Return the message for the service that applies the commands."""
    return OutgoingMessage(
        exchange=CHANGES,
        routing_key=_changes_key(commands.verb),
        body=encode(commands),
        type=message_type("accepted_commands"),
        message_id=message_id,
        correlation_id=commands.correlation_id,
        headers=headers or {},
    )


def accepted_batch_message(
    commands: Sequence[AcceptedCommands],
    *,
    message_ids: Sequence[str],
    headers: Mapping[str, FieldValue],
) -> OutgoingMessage:
    """Return one message to the ticker with the commands of several messages, in their order.

    A repeat of the same messages has the same message id.
    """
    return OutgoingMessage(
        exchange=CHANGES,
        routing_key=CHANGES_SCHEDULE,
        body=encode_all(commands),
        type=ACCEPTED_BATCH,
        message_id=digest(*(each.encode() for each in message_ids)),
        headers=headers,
    )


def rejection_reply(result: CheckResult, *, message_id: str) -> OutgoingMessage | None:
    """Return the reply to a message whose items are all rejected, or None without `reply_to`.

    The service that applies the other items also responds to the rejected items.
    """
    accepted = result.accepted
    if accepted.reply_to is None or not result.is_rejected:
        return None
    responses = [rejection.response for rejection in result.rejections]
    body = encode(responses[0]) if accepted.single else encode_all(responses)
    return reply(accepted.reply_to, accepted.correlation_id, body, message_id=message_id)


def rejection_events(result: CheckResult, *, message_id: str) -> Iterator[OutgoingEvent]:
    """Yield one event for each rejected item, with ids that a repeat of the message repeats."""
    prefix = digest(message_id.encode())  # a message id may be too long for an id with a suffix
    for rejection in result.rejections:
        yield _rejection_event(result.accepted, rejection, f"{prefix}/{rejection.index}")


def _changes_key(verb: str) -> str:
    if verb in BREAKER_COMMANDS:
        return CHANGES_BREAKER
    if verb in REPORT_COMMANDS:
        return CHANGES_REPORT
    return CHANGES_DLQ if verb in DEAD_LETTER_COMMANDS else CHANGES_SCHEDULE


def _rejection_event(
    accepted: AcceptedCommands, rejection: RejectedItem, event_id: str
) -> OutgoingEvent:
    data = ScheduleEventData(
        key=rejection.key,
        actor=accepted.actor,
        error=rejection.response.error.model_dump(mode="json", exclude_none=True),
    )
    event = make_event(
        accepted.tenant,
        REJECTED,
        data,
        id_=event_id,
        subject=rejection.key or accepted.verb,
        at=accepted.accepted_at,
    )
    return OutgoingEvent(accepted.tenant, REJECTED, event)
