"""Facts on their way to whoever listens, and into the metrics: what is told is counted."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

import structlog

from harebell.contract.codec import encode_all
from harebell.contract.errors import HarebellError, Unroutable
from harebell.contract.events import Event
from harebell.contract.names import CLOUDEVENTS, EVENTS, message_key, message_type
from harebell.kernel import metrics
from harebell.kernel.amqp.publish import Outgoing, Publisher
from harebell.kernel.ledger import End, Ending

MAX_EVENTS: Final = 500  # in one message

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Fact:
    """`verb` is one of `contract.events.FACTS`. `attempt`, `end`: what of a run it tells."""

    tenant: str
    verb: str
    event: Event
    attempt: Ending | None = None
    end: End | None = None


def event_messages(facts: Iterable[Fact]) -> list[Outgoing]:
    groups: dict[tuple[str, str], list[Event]] = defaultdict(list)
    for fact in facts:
        groups[fact.tenant, fact.verb].append(fact.event)
    return [
        _message(tenant, verb, events[start : start + MAX_EVENTS])
        for (tenant, verb), events in groups.items()
        for start in range(0, len(events), MAX_EVENTS)
    ]


def _message(tenant: str, verb: str, events: list[Event]) -> Outgoing:
    return Outgoing(
        exchange=EVENTS,
        routing_key=message_key(tenant, verb),
        body=encode_all(events),
        type=message_type(verb),
        message_id=f"{events[0].id}+{len(events)}",
        content_type=CLOUDEVENTS,
    )


async def tell(publisher: Publisher, facts: Iterable[Fact]) -> None:
    """Events are hints, the ledger is the truth: what cannot be told is let go.

    Only what is committed is told, so here, and nowhere else, the ends of runs are counted.
    """
    facts = list(facts)
    for fact in facts:
        _count(fact)
    for failure in await publisher.try_all(event_messages(facts)):
        if failure is None or isinstance(failure, Unroutable):
            continue
        if not isinstance(failure, HarebellError):
            raise failure
        log.warning("events not told", error=failure.code, reason=failure.reason)


def _count(fact: Fact) -> None:
    if (attempt := fact.attempt) is not None:
        metrics.ATTEMPTS.labels(attempt.outcome).inc()
        metrics.DURATION.labels(attempt.outcome).observe((attempt.duration_ms or 0) / 1000)
    if (end := fact.end) is not None:
        metrics.RUNS.labels(end.state, end.reason or "").inc(end.runs)
