"""Alerts: the events for new and for parked dead letters, and for stalled replay jobs."""

import re
from dataclasses import dataclass
from datetime import datetime
from typing import Final, TypeAlias
from uuid import UUID

from harebell.contract.amqp_names import OPERATIONS_TENANT
from harebell.contract.events import (
    DeadLettersParkedEventData,
    DeadLetterSpikeEventData,
    Event,
    EventJson,
    ReplayJobStalledEventData,
    make_event,
)
from harebell.contract.message import Message
from harebell.contract.types import instant_text
from harebell.messaging.topology.bus import PARKED_DEAD_LETTERS

SPIKE = "dlq.spike"
PARKED = "dlq.parked"
STALLED = "replay_job.stalled"
_ENTITIES: Final = {"&": "&amp;", "<": "&lt;", ">": "&gt;"}
_MARKUP: Final = re.compile("[&<>]")
# The publishers of alerts escape the texts of tenants, so the text may contain entities.
_MARKUP_OF_TEXT: Final = re.compile("&(?!(?:amp|lt|gt);)|[<>]")


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetterSpike:
    """More new dead letters of a tenant than the setting allows.

    Most of these dead letters belong to `group`.
    """

    tenant: str
    dead_letters: int
    since: datetime
    group: UUID | None = None
    target: str | None = None
    error_code: str | None = None

    verb = SPIKE
    subject = "dead_letters"

    def event(self, at: datetime) -> EventJson:
        text = (
            f"The tenant {self.tenant} has {self.dead_letters} new dead letters "
            f"since {_second(self.since)}."
        )
        if self.group is not None:
            error, target = chat_text(str(self.error_code)), chat_text(str(self.target))
            text += f" Most dead letters have the error {error} at {target}."
        data = DeadLetterSpikeEventData(
            text=text,
            dead_letters=self.dead_letters,
            since=self.since,
            group=self.group,
            target=self.target,
            error_code=self.error_code,
        )
        return _event(self, data, at)


@dataclass(frozen=True, slots=True, kw_only=True)
class StalledReplayJob:
    """A replay job without progress that no person has paused.

    `reason` is the error after which the dlq_inspector paused the job.
    """

    tenant: str
    replay_job_id: UUID
    state: str
    reason: str | None
    since: datetime
    remaining: int
    unfinished: int

    verb = STALLED

    @property
    def subject(self) -> str:
        return str(self.replay_job_id)

    def event(self, at: datetime) -> EventJson:
        text = (
            f"The replay job {self.replay_job_id} of the tenant {self.tenant} is {self.state} "
            f"without progress since {_second(self.since)}. "
            f"The job has {self.remaining} remaining dead letters and "
            f"{self.unfinished} unfinished runs."
        )
        if self.reason:
            text += f" The reason of the pause: {chat_text(self.reason)}"
        data = ReplayJobStalledEventData(
            text=text,
            replay_job_id=self.replay_job_id,
            state=self.state,
            since=self.since,
            reason=self.reason,
            remaining=self.remaining,
            unfinished=self.unfinished,
        )
        return _event(self, data, at)


@dataclass(frozen=True, slots=True, kw_only=True)
class ParkedDeadLetters:
    """Dead letters that cannot be stored."""

    parked: int

    tenant = OPERATIONS_TENANT
    verb = PARKED
    subject = "parked"

    def event(self, at: datetime) -> EventJson:
        text = (
            f"The queue {PARKED_DEAD_LETTERS.name} has {self.parked} dead letters that could not "
            "be stored. `harebell dlq parked` shows them."
        )
        return _event(self, DeadLettersParkedEventData(text=text, parked=self.parked), at)


Alert: TypeAlias = DeadLetterSpike | StalledReplayJob | ParkedDeadLetters


def _event(alert: Alert, data: Message, at: datetime) -> EventJson:
    # each repetition of an alert has its own id, because a receiver must not drop it as a duplicate
    id_ = f"{alert.subject}/{instant_text(at)}"
    return make_event(alert.tenant, alert.verb, data, id_=id_, subject=alert.subject, at=at)


def _second(time: datetime) -> str:
    return instant_text(time.replace(microsecond=0))


def headline(event: Event) -> str:
    """Return one line about an alert event for a chat, without markup."""
    text = event.data.get("text")
    if isinstance(text, str):
        return _escape(text, _MARKUP_OF_TEXT)
    return chat_text(f"The event {event.type} of {event.source} reports {event.subject}.")


def chat_text(text: str) -> str:
    """Escape the characters of a text that a chat reads as markup, and control characters.

    Texts of a tenant, such as error codes, could otherwise contain links and mentions.
    """
    return _escape(text, _MARKUP)


def _escape(text: str, markup: re.Pattern[str]) -> str:
    visible = "".join(
        each if each.isprintable() else each.encode("unicode_escape").decode() for each in text
    )
    return markup.sub(lambda match: _ENTITIES[match.group()], visible)
