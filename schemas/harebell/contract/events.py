"""Events about schedules, runs, breakers and dead letters, as CloudEvents.

A receiver may lose an event. The ledger contains every fact.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final, Literal, TypeAlias
from uuid import UUID

from harebell.contract.amqp_names import message_type
from harebell.contract.breakers import BreakerEventData, BreakerForcedEventData
from harebell.contract.ids import RunId
from harebell.contract.message import Message
from harebell.contract.types import Instant


class Event(Message):
    """One event of a batch. A message contains events of one tenant and one type."""

    specversion: Literal["1.0"] = "1.0"
    id: str  # derived, so that a repeated event has the same id
    source: str  # /harebell/<tenant>
    type: str
    subject: str
    time: Instant
    datacontenttype: Literal["application/json"] = "application/json"
    data: dict[str, Any]


class RunEventData(Message):
    """The data of `run.*` events.

    `downstream` is the system that the attempt called, such as `acme.example:443`. `healthy` is
    false after a failure of the downstream, and null if the attempt shows nothing about it.
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


class RunProgressedEventData(Message):
    """The data of `run.progressed`: the last report of a running attempt, without its checkpoint.

    Harebell publishes at most one of these events of a run in ten seconds.
    """

    run_id: RunId
    schedule_id: UUID
    scheduled_for: Instant
    percent: float | None = None
    message: str | None = None


class ScheduleEventData(Message):
    """The data of `schedule.*` events. `error` is the error of a rejection.

    `result` is the state of the last run of a completed schedule.
    """

    schedule_id: UUID | None = None
    key: str | None = None
    version: int | None = None
    state: str | None = None
    result: str | None = None
    actor: str | None = None
    note: str | None = None
    next_at: Instant | None = None
    error: dict[str, Any] | None = None


class LivenessEventData(Message):
    """The data of `liveness.missed`: the component without activity since a time."""

    component: str  # "ticker" or "pool default"
    since: Instant


class DeadLetterSpikeEventData(Message):
    """The data of `dlq.spike`: the number of new dead letters since a time.

    `group` is the failure group of most of these dead letters.
    """

    text: str  # the whole alert as a sentence, for a chat
    dead_letters: int
    since: Instant
    group: UUID | None = None
    target: str | None = None
    error_code: str | None = None


class DeadLettersParkedEventData(Message):
    """The data of `dlq.parked`: the number of dead letters that cannot be stored."""

    text: str  # the whole alert as a sentence, for a chat
    parked: int


class ReplayJobStalledEventData(Message):
    """The data of `replay_job.stalled`: a replay job without progress since a time."""

    text: str  # the whole alert as a sentence, for a chat
    replay_job_id: UUID
    state: str
    since: Instant
    reason: str | None = None  # of an automatic pause
    remaining: int  # dead letters that the job has not taken
    unfinished: int  # replayed runs without an end


_SCHEDULE_EVENTS: Final = (
    "created",
    "updated",
    "paused",
    "resumed",
    "cancelled",
    "completed",
    "deleted",
    "triggered",
    "rejected",
    "errored",
    "blocked",
    "change_scheduled",
    "change_missed",
    "skipped",
    "backfilled",
)
_RUN_EVENTS: Final = (
    "succeeded",
    "retrying",
    "dead",
    "unresolved",
    "cancelled",
    "expired",
    "skipped",
)

EVENT_DATA: Final[dict[str, type[Message]]] = {
    **{f"schedule.{name}": ScheduleEventData for name in _SCHEDULE_EVENTS},
    **{f"run.{name}": RunEventData for name in _RUN_EVENTS},
    "run.delegated": RunEventData,
    "run.progressed": RunProgressedEventData,
    "liveness.missed": LivenessEventData,
    "dlq.spike": DeadLetterSpikeEventData,
    "dlq.parked": DeadLettersParkedEventData,
    "replay_job.stalled": ReplayJobStalledEventData,
    **{f"breaker.{name}": BreakerEventData for name in ("opened", "half_opened", "closed")},
    **{f"breaker.{name}": BreakerForcedEventData for name in ("forced", "reset")},
}

# Events that the webhook sends to people. The queue `harebell.alerts` stores them.
ALERT_EVENTS: Final = (
    "dlq.spike",
    "dlq.parked",
    "replay_job.stalled",
    "breaker.opened",
    "liveness.missed",
)


# An `Event` of values that `encode_plain` writes. Every run causes one, so no model is created.
EventJson: TypeAlias = dict[str, Any]


def make_event(
    tenant: str,
    verb: str,
    data: Message | Mapping[str, Any],
    *,
    id_: str,
    subject: str,
    at: datetime,
) -> EventJson:
    """Return an event without the fields of `data` that are null. `verb` is in `EVENT_DATA`."""
    fields = data.model_dump(mode="json") if isinstance(data, Message) else data
    return {
        "specversion": "1.0",
        "id": f"{id_}/{verb}",
        "source": f"/harebell/{tenant}",
        "type": message_type(verb),
        "subject": subject,
        "time": at,
        "datacontenttype": "application/json",
        "data": {name: value for name, value in fields.items() if value is not None},
    }
