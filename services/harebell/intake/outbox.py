"""What the door lets out: changes, answers, and events about what it refused."""

from hashlib import sha256

from harebell.contract.changes import Change
from harebell.contract.codec import encode, encode_all
from harebell.contract.commands import DLQ_COMMANDS
from harebell.contract.events import Event, ScheduleFact, event
from harebell.contract.message import Message
from harebell.contract.names import (
    CHANGES,
    CHANGES_DLQ,
    CHANGES_SCHEDULE,
    CLOUDEVENTS,
    EVENTS,
    message_key,
    message_type,
)
from harebell.intake.core import Checked, Rejection, Submission
from harebell.kernel.amqp.publish import Outgoing

DEFAULT_EXCHANGE = ""  # routes by the name of the queue: how `reply_to` is meant
REJECTED = "schedule.rejected"


def name_of(submission: Submission) -> str:
    """Its message id, or one derived from it: what is published twice is seen to be the same."""
    told = submission.routing_key.encode() + b"\0" + submission.body
    return submission.message_id or sha256(told).hexdigest()


def change_message(change: Change, *, name: str) -> Outgoing:
    return Outgoing(
        exchange=CHANGES,
        routing_key=CHANGES_DLQ if change.verb in DLQ_COMMANDS else CHANGES_SCHEDULE,
        body=encode(change),
        type=message_type("change"),
        message_id=name,
        correlation_id=change.correlation_id,
    )


def refusals_message(checked: Checked, *, name: str) -> Outgoing | None:
    """Intake's own answer, when nothing is left to pass on and somebody asked for one."""
    change = checked.change
    if change.reply_to is None or not checked.is_refused:
        return None
    answers = [rejection.refusal for rejection in checked.rejections]
    body = encode(answers[0]) if change.single else encode_all(answers)
    return _answer(change.reply_to, change.correlation_id, body, name=name)


def answer_message(submission: Submission, reply_to: str, answer: Message) -> Outgoing:
    return _answer(reply_to, submission.correlation_id, encode(answer), name=name_of(submission))


def rejected_message(checked: Checked, *, name: str) -> Outgoing | None:
    """All refusals of a message as one batch of events."""
    if not checked.rejections:
        return None
    events = [_event(checked.change, rejection, name) for rejection in checked.rejections]
    return Outgoing(
        exchange=EVENTS,
        routing_key=message_key(checked.change.tenant, REJECTED),
        body=encode_all(events),
        type=message_type(REJECTED),
        message_id=name,
        content_type=CLOUDEVENTS,
        correlation_id=checked.change.correlation_id,
    )


def _event(change: Change, rejection: Rejection, name: str) -> Event:
    fact = ScheduleFact(
        key=rejection.key,
        actor=change.actor,
        error=rejection.refusal.error.model_dump(mode="json", exclude_none=True),
    )
    subject = rejection.key or change.verb
    identity = f"{name}/{rejection.index}"
    return event(
        change.tenant, REJECTED, fact, id_=identity, subject=subject, at=change.accepted_at
    )


def _answer(reply_to: str, correlation_id: str | None, body: bytes, *, name: str) -> Outgoing:
    return Outgoing(
        exchange=DEFAULT_EXCHANGE,
        routing_key=reply_to,
        body=body,
        type=message_type("answer"),
        message_id=name,
        correlation_id=correlation_id,
    )
