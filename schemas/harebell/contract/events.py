"""Events: facts about schedules and runs, as CloudEvents. Hints; the ledger is the truth."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final, Literal, TypeAlias
from uuid import UUID

from pydantic import Field

from harebell.contract.amqp_names import message_type
from harebell.contract.breakers import BreakerEventData, BreakerForcedEventData
from harebell.contract.ids import RunId
from harebell.contract.message import Message
from harebell.contract.types import Instant


class Event(Message):
    """One record of a batch; a message carries one tenant and one type."""

    specversion: Literal["1.0"] = "1.0"
    id: str  # derived: the same fact told twice has the same id
    source: str  # /harebell/<tenant>
    type: str
    subject: str
    time: Instant
    datacontenttype: Literal["application/json"] = "application/json"
    data: dict[str, Any]


class RunEventData(Message):
    """`data` of run.* events.

    `downstream`: whom the attempt called (`http:acme.example`). `healthy`: whether it did its part;
    absent where the attempt tells nothing of it.
    """

    run_id: RunId
    schedule_id: UUID
    key: str | None = None
    scheduled_for: Instant
    attempt: int
    state: str
    reason: str | None = None
    finished_at: Instant | None = None
    next_attempt_at: Instant | None = None
    downstream: str | None = None
    healthy: bool | None = None


class ScheduleEventData(Message):
    """`data` of schedule.* events. `error` is that of a refusal."""

    schedule_id: UUID | None = None
    key: str | None = None
    version: int | None = None
    state: str | None = None
    actor: str | None = None
    note: str | None = None
    next_at: Instant | None = None
    error: dict[str, Any] | None = Field(default=None)


class LivenessEventData(Message):
    """`data` of watch.missed: told from outside, of who has left undone what was due at `since`."""

    component: str  # ticker; pool default
    since: Instant


class DeadLetterSpikeEventData(Message):
    """`data` of dlq.grown: so many new dead letters since then; most of them are of `group`."""

    text: str  # in words, as every alert has it that is meant for a chat
    dead_letters: int
    since: Instant
    group: UUID | None = None
    target: str | None = None
    error_code: str | None = None


class ReplayJobStalledEventData(Message):
    """`data` of replay.stalled: a replay of many that has not moved since."""

    text: str
    replay_job_id: UUID
    state: str
    since: Instant
    reason: str | None = None  # why it paused by itself
    remaining: int  # letters that it has not taken
    unfinished: int  # replayed runs that have not ended


EVENT_DATA: Final[dict[str, type[Message]]] = {
    **{
        f"schedule.{what}": ScheduleEventData
        for what in (
            *("created", "updated", "paused", "resumed", "cancelled", "completed"),
            *("triggered", "rejected", "errored", "blocked", "change_scheduled", "change_missed"),
            *("skipped", "backfilled"),
        )
    },
    **{
        f"run.{what}": RunEventData
        for what in (
            *("succeeded", "retrying", "dead", "unresolved", "cancelled", "expired", "skipped"),
        )
    },
    "liveness.missed": LivenessEventData,
    "dlq.spike": DeadLetterSpikeEventData,
    "replay_job.stalled": ReplayJobStalledEventData,
    **{f"breaker.{what}": BreakerEventData for what in ("opened", "half_opened", "closed")},
    **{f"breaker.{what}": BreakerForcedEventData for what in ("forced", "reset")},
}

# What somebody should hear of soon: kept in a queue for the webhook.
ALERT_EVENTS: Final = ("dlq.spike", "replay_job.stalled", "breaker.opened", "liveness.missed")


# An `Event`, of what `encode_records` can write: every run tells one, so no model is made.
EventJson: TypeAlias = dict[str, Any]


def make_event(
    tenant: str,
    verb: str,
    fact: Message | Mapping[str, Any],
    *,
    id_: str,
    subject: str,
    at: datetime,
) -> EventJson:
    """`verb` is one of `FACTS`; nulls are left out of the data."""
    data = fact.model_dump(mode="json") if isinstance(fact, Message) else fact
    return {
        "specversion": "1.0",
        "id": f"{id_}/{verb}",
        "source": f"/harebell/{tenant}",
        "type": message_type(verb),
        "subject": subject,
        "time": at,
        "datacontenttype": "application/json",
        "data": {name: value for name, value in data.items() if value is not None},
    }
