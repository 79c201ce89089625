"""What the door lets out: changes, its own answers, and the facts of what it refused."""

from collections.abc import Iterator
from hashlib import sha256
from typing import Final

from harebell.contract.breakers import BREAKER_COMMANDS
from harebell.contract.changes import Change
from harebell.contract.codec import encode, encode_all
from harebell.contract.commands import DLQ_COMMANDS
from harebell.contract.events import ScheduleFact, event
from harebell.contract.names import (
    CHANGES,
    CHANGES_BREAKER,
    CHANGES_DLQ,
    CHANGES_SCHEDULE,
    message_type,
)
from harebell.intake.core import Checked, Rejection, Submission
from harebell.kernel.amqp.events import Fact
from harebell.kernel.amqp.publish import Outgoing
from harebell.kernel.amqp.replies import reply

REJECTED: Final = "schedule.rejected"
DIGEST: Final = 32  # hexadecimal digits


def name_of(submission: Submission) -> str:
    """Its message id, or one derived from it: what is published twice is seen to be the same."""
    return submission.message_id or _digest(submission.routing_key.encode(), submission.body)


def change_message(change: Change, *, name: str) -> Outgoing:
    return Outgoing(
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
    return CHANGES_DLQ if verb in DLQ_COMMANDS else CHANGES_SCHEDULE


def refusals_message(checked: Checked, *, name: str) -> Outgoing | None:
    """Intake's own answer, when nothing is left to pass on and somebody asked for one."""
    change = checked.change
    if change.reply_to is None or not checked.is_refused:
        return None
    answers = [rejection.refusal for rejection in checked.rejections]
    body = encode(answers[0]) if change.single else encode_all(answers)
    return reply(change.reply_to, change.correlation_id, body, name=name)


def rejected_facts(checked: Checked, *, name: str) -> Iterator[Fact]:
    identity = _digest(name.encode())  # a message id may be too long to make others from it
    for rejection in checked.rejections:
        yield _rejected(checked.change, rejection, f"{identity}/{rejection.index}")


def _rejected(change: Change, rejection: Rejection, identity: str) -> Fact:
    fact = ScheduleFact(
        key=rejection.key,
        actor=change.actor,
        error=rejection.refusal.error.model_dump(mode="json", exclude_none=True),
    )
    subject = rejection.key or change.verb
    at = change.accepted_at
    told = event(change.tenant, REJECTED, fact, id_=identity, subject=subject, at=at)
    return Fact(change.tenant, REJECTED, told)


def _digest(*parts: bytes) -> str:
    return sha256(b"\0".join(parts)).hexdigest()[:DIGEST]
