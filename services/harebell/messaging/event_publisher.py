"""Facts on their way to whoever listens, and into the metrics: what is told is counted."""

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
from harebell.domain.run_states import AttemptCompletion, RunEnd
from harebell.messaging import metrics
from harebell.messaging.publisher import OutgoingMessage, Publisher

MAX_EVENTS: Final = 500  # in one message

log = structlog.get_logger()


class OutgoingEvent(NamedTuple):
    """`verb` is one of `contract.events.FACTS`. `attempt`, `end`: what of a run it tells."""

    tenant: str
    verb: str
    event: EventJson
    attempt: AttemptCompletion | None = None
    end: RunEnd | None = None


def event_messages(facts: Iterable[OutgoingEvent]) -> list[OutgoingMessage]:
    groups: dict[tuple[str, str], list[EventJson]] = defaultdict(list)
    for fact in facts:
        groups[fact.tenant, fact.verb].append(fact.event)
    return [
        _message(tenant, verb, events[start : start + MAX_EVENTS])
        for (tenant, verb), events in groups.items()
        for start in range(0, len(events), MAX_EVENTS)
    ]


def _message(tenant: str, verb: str, events: list[EventJson]) -> OutgoingMessage:
    return OutgoingMessage(
        exchange=EVENTS,
        routing_key=message_key(tenant, verb),
        body=encode_plain(events),
        type=message_type(verb),
        message_id=f"{events[0]['id']}+{len(events)}",
        content_type=CLOUDEVENTS,
        headers=_gist(events[0]["data"]),
    )


def _gist(data: Mapping[str, Any]) -> dict[str, FieldValue]:
    """Of a refusal, the first of a message: for people who open the management UI."""
    error = data.get("error")
    if not isinstance(error, dict):
        return {}
    said = {
        amqp_names.REFUSED_KEY: data.get("key"),
        amqp_names.REFUSED_CODE: error.get("code"),
        amqp_names.REFUSED_FIELD: error.get("field"),
        amqp_names.REFUSED_REASON: error.get("reason"),
    }
    return {name: text for name, text in said.items() if isinstance(text, str)}


async def publish_events(publisher: Publisher, facts: Iterable[OutgoingEvent]) -> None:
    """Events are hints, the ledger is the truth: what cannot be told is let go. Raises nothing.

    Only what is committed is told, so here, and nowhere else, the ends of runs are counted; and
    a fault of ours in telling must not pass for one of what is committed.
    """
    facts = list(facts)
    try:
        _count(facts)
        failures = await publisher.publish_each(event_messages(facts))
    except Exception:
        log.exception("events not told", events=len(facts))
        return
    for failure in failures:
        if isinstance(failure, HarebellError) and not isinstance(failure, Unroutable):
            log.warning("events not told", error=failure.code, reason=failure.reason)
        elif failure is not None and not isinstance(failure, HarebellError):
            log.error("events not told", exc_info=failure)


def _count(facts: Iterable[OutgoingEvent]) -> None:
    """Of a batch together: to find a metric's child costs as much as to count."""
    attempts: dict[str, list[AttemptCompletion]] = defaultdict(list)
    runs: Counter[tuple[str, str]] = Counter()
    for fact in facts:
        if fact.attempt is not None:
            attempts[fact.attempt.outcome].append(fact.attempt)
        if fact.end is not None:
            runs[fact.end.state, fact.end.reason or ""] += fact.end.runs
    for outcome, ended in attempts.items():
        metrics.ATTEMPTS.labels(outcome).inc(len(ended))
        duration = metrics.ATTEMPT_DURATION.labels(outcome)
        for attempt in ended:
            duration.observe((attempt.duration_ms or 0) / 1000)
    for labels, count in runs.items():
        metrics.RUNS.labels(*labels).inc(count)
