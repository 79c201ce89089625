"""Publishing of events in batches, and the metrics of the runs and attempts in them.

The budget of each tenant bounds the events of its rejections.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

import structlog
from pamqp.common import FieldValue

from harebell.contract import amqp_names
from harebell.contract.amqp_names import CLOUDEVENTS, EVENTS, message_key, message_type
from harebell.contract.errors import HarebellError, Unroutable
from harebell.contract.events import EventJson
from harebell.contract.json_codec import encode_plain
from harebell.domain.event_budget import EventBudget
from harebell.domain.run_states import AttemptCompletion, RunEnd
from harebell.messaging import metrics, run_log
from harebell.messaging.publisher import OutgoingMessage, Publisher
from harebell.runtime.clock import monotonic

MAX_EVENTS: Final = 500  # in one message

log = structlog.get_logger()


class OutgoingEvent(NamedTuple):
    """An event to publish, and the attempt and the end of a run that the metrics count.

    `verb` is a key of `contract.events.EVENT_DATA`.
    The class is a tuple because each run creates one (decision 19).
    """

    tenant: str
    verb: str
    event: EventJson
    attempt: AttemptCompletion | None = None
    end: RunEnd | None = None


def event_messages(events: Iterable[OutgoingEvent]) -> list[OutgoingMessage]:
    """Return messages with up to `MAX_EVENTS` events of one tenant and one verb each."""
    groups: dict[tuple[str, str], list[EventJson]] = defaultdict(list)
    for each in events:
        groups[each.tenant, each.verb].append(each.event)
    return [
        _message(tenant, verb, group[start : start + MAX_EVENTS])
        for (tenant, verb), group in groups.items()
        for start in range(0, len(group), MAX_EVENTS)
    ]


def _message(tenant: str, verb: str, events: list[EventJson]) -> OutgoingMessage:
    return OutgoingMessage(
        exchange=EVENTS,
        routing_key=message_key(tenant, verb),
        body=encode_plain(events),
        type=message_type(verb),
        message_id=f"{events[0]['id']}+{len(events)}",
        content_type=CLOUDEVENTS,
        headers=_error_headers(events[0]["data"]),
    )


def _error_headers(data: Mapping[str, Any]) -> dict[str, FieldValue]:
    """Return the error of the first event in headers, which the management UI shows."""
    error = data.get("error")
    if not isinstance(error, dict):
        return {}
    headers = {
        amqp_names.REJECTED_KEY: data.get("key"),
        amqp_names.REJECTED_CODE: error.get("code"),
        amqp_names.REJECTED_FIELD: error.get("field"),
        amqp_names.REJECTED_REASON: error.get("reason"),
    }
    return {name: text for name, text in headers.items() if isinstance(text, str)}


async def publish_events(publisher: Publisher, events: Iterable[OutgoingEvent]) -> None:
    """Count, log and publish the events of committed changes. Raise no error.

    Events are hints and the ledger is the record, so a failed publish is only logged.
    An error here must not look like a failure of the committed change.
    Only committed changes have events, so only this function counts ended runs and attempts.
    """
    events = list(events)
    try:
        _count(events)
        for each in events:
            runs = 1 if each.end is None else each.end.runs
            run_log.log_event(
                each.tenant, each.verb, each.event["data"], attempt=each.attempt, runs=runs
            )
        failures = await publisher.publish_each(event_messages(events))
    except Exception:
        log.exception("events not published", events=len(events))
        return
    for failure in failures:
        if isinstance(failure, HarebellError) and not isinstance(failure, Unroutable):
            log.warning("events not published", error=failure.code, reason=failure.reason)
        elif failure is not None and not isinstance(failure, HarebellError):
            log.error("events not published", exc_info=failure)


def _count(events: Iterable[OutgoingEvent]) -> None:
    """Count a batch by label values, because the lookup of a label child is expensive."""
    attempts: dict[str, list[AttemptCompletion]] = defaultdict(list)
    runs: Counter[tuple[str, str]] = Counter()
    for event in events:
        if event.attempt is not None:
            attempts[event.attempt.outcome].append(event.attempt)
        if event.end is not None:
            runs[event.end.state, event.end.reason or ""] += event.end.runs
    for outcome, ended in attempts.items():
        metrics.ATTEMPTS.labels(outcome).inc(len(ended))
        duration = metrics.ATTEMPT_DURATION.labels(outcome)
        for attempt in ended:
            duration.observe((attempt.duration_ms or 0) / 1000)
    for labels, count in runs.items():
        metrics.RUNS.labels(*labels).inc(count)


class RejectionEvents:
    """The publisher of `schedule.rejected`, which omits the events over the budget of a tenant.

    Without the budget, a tenant that reads these events and sends each as a command starts a loop.
    """

    def __init__(self, publisher: Publisher) -> None:
        self._publisher = publisher
        self._budget = EventBudget()

    async def publish(self, events: Iterable[OutgoingEvent]) -> None:
        """Publish the events within the budgets, and count the others. Raise no error."""
        groups: dict[str, list[OutgoingEvent]] = {}
        for event in events:
            groups.setdefault(event.tenant, []).append(event)
        allowed: list[OutgoingEvent] = []
        for tenant, group in groups.items():
            taken = self._budget.take(tenant, len(group), monotonic())
            allowed += group[:taken]
            if taken < len(group):
                metrics.OMITTED_EVENTS.inc(len(group) - taken)
                log.info("rejection events omitted", tenant=tenant, events=len(group) - taken)
        if allowed:
            await publish_events(self._publisher, allowed)
