"""What is wrong at the desk, as events: dead letters that grow, replays that do not move."""

from dataclasses import dataclass
from datetime import datetime
from typing import TypeAlias
from uuid import UUID

from harebell.contract.events import (
    DeadLetterSpikeEventData,
    Event,
    EventJson,
    ReplayJobStalledEventData,
    make_event,
)
from harebell.contract.types import instant_text

SPIKE = "dlq.spike"
STALLED = "replay_job.stalled"


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetterSpike:
    """More new letters of a tenant than it may have; `group`: that of most of them."""

    tenant: str
    letters: int
    since: datetime
    group: UUID | None = None
    target: str | None = None
    error_code: str | None = None

    verb = SPIKE
    subject = "desk"

    def event(self, at: datetime) -> EventJson:
        most = f", most of them {self.error_code} at {self.target}" if self.group else ""
        text = f"{self.tenant}: {self.letters} new dead letters since {_second(self.since)}{most}"
        fact = DeadLetterSpikeEventData(
            text=text,
            dead_letters=self.letters,
            since=self.since,
            group=self.group,
            target=self.target,
            error_code=self.error_code,
        )
        return _event(self, fact, at)


@dataclass(frozen=True, slots=True, kw_only=True)
class StalledReplayJob:
    """A replay of many. Halted: one that paused by itself, and says why."""

    tenant: str
    job: UUID
    state: str
    reason: str | None
    since: datetime
    waiting: int
    undecided: int

    verb = STALLED

    @property
    def subject(self) -> str:
        return str(self.job)

    def event(self, at: datetime) -> EventJson:
        why = f": {self.reason}" if self.reason else ""
        text = (
            f"{self.tenant}: replay {self.job} is {self.state} and has not moved since "
            f"{_second(self.since)}; {self.waiting} letters wait, "
            f"{self.undecided} runs have not ended{why}"
        )
        fact = ReplayJobStalledEventData(
            text=text,
            replay_job_id=self.job,
            state=self.state,
            since=self.since,
            reason=self.reason,
            remaining=self.waiting,
            unfinished=self.undecided,
        )
        return _event(self, fact, at)


Alert: TypeAlias = DeadLetterSpike | StalledReplayJob


def _event(
    alert: Alert, fact: DeadLetterSpikeEventData | ReplayJobStalledEventData, at: datetime
) -> EventJson:
    """Told again while it lasts, under an id of its own: somebody is to hear of it again."""
    id_ = f"{alert.subject}/{instant_text(at)}"
    return make_event(alert.tenant, alert.verb, fact, id_=id_, subject=alert.subject, at=at)


def _second(moment: datetime) -> str:
    return instant_text(moment.replace(microsecond=0))


def headline(told: Event) -> str:
    """One line of any alert, for a chat."""
    text = told.data.get("text")
    return text if isinstance(text, str) else f"{told.source}: {told.type} {told.subject}"
