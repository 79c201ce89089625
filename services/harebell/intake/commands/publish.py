"""What the door lets out: changes, its own answers, and the facts of what it refused."""

from collections.abc import Iterator
from hashlib import sha256
from typing import Final

from harebell.contract.accepted_commands import AcceptedCommands
from harebell.contract.amqp_names import (
    CHANGES,
    CHANGES_BREAKER,
    CHANGES_DLQ,
    CHANGES_SCHEDULE,
    message_type,
)
from harebell.contract.breakers import BREAKER_COMMANDS
from harebell.contract.commands import DEAD_LETTER_COMMANDS
from harebell.contract.events import ScheduleEventData, make_event
from harebell.contract.json_codec import encode, encode_all
from harebell.intake.commands.check import CheckResult, IncomingRequest, RejectedItem
from harebell.messaging.event_publisher import OutgoingEvent
from harebell.messaging.publisher import OutgoingMessage
from harebell.messaging.replies import reply

REJECTED: Final = "schedule.rejected"
DIGEST: Final = 32  # hexadecimal digits


def message_id_of(submission: IncomingRequest) -> str:
    """Its message id, or one derived from it: what is published twice is seen to be the same."""
    return submission.message_id or _digest(submission.routing_key.encode(), submission.body)


def accepted_commands_message(change: AcceptedCommands, *, name: str) -> OutgoingMessage:
    return OutgoingMessage(
        exchange=CHANGES,
        routing_key=_place_of(change.verb),
        body=encode(change),
        type=message_type("change"),
        message_id=name,
        correlation_id=change.correlation_id,
    )


def _place_of(verb: str) -> str:
    if verb in BREAKER_COMMANDS:
        return CHANGES_BREAKER
    return CHANGES_DLQ if verb in DEAD_LETTER_COMMANDS else CHANGES_SCHEDULE


def rejection_reply(checked: CheckResult, *, name: str) -> OutgoingMessage | None:
    """Intake's own answer, when nothing is left to pass on and somebody asked for one."""
    change = checked.change
    if change.reply_to is None or not checked.is_refused:
        return None
    answers = [rejection.refusal for rejection in checked.rejections]
    body = encode(answers[0]) if change.single else encode_all(answers)
    return reply(change.reply_to, change.correlation_id, body, message_id=name)


def rejection_events(checked: CheckResult, *, name: str) -> Iterator[OutgoingEvent]:
    identity = _digest(name.encode())  # a message id may be too long to make others from it
    for rejection in checked.rejections:
        yield _rejected(checked.change, rejection, f"{identity}/{rejection.index}")


def _rejected(change: AcceptedCommands, rejection: RejectedItem, identity: str) -> OutgoingEvent:
    fact = ScheduleEventData(
        key=rejection.key,
        actor=change.actor,
        error=rejection.refusal.error.model_dump(mode="json", exclude_none=True),
    )
    subject = rejection.key or change.verb
    at = change.accepted_at
    told = make_event(change.tenant, REJECTED, fact, id_=identity, subject=subject, at=at)
    return OutgoingEvent(change.tenant, REJECTED, told)


def _digest(*parts: bytes) -> str:
    return sha256(b"\0".join(parts)).hexdigest()[:DIGEST]
