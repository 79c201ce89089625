"""The spans `stage`: one for each traced message of commands, and one for each staging pass."""

from collections.abc import Iterable
from datetime import datetime

import orjson

from harebell.contract.amqp_names import CHANGES, DELAY
from harebell.contract.trace import TraceContext
from harebell.domain.trace_relation import SpanRelation
from harebell.runtime import spans
from harebell.ticker.commands.batch import CommandBatch
from harebell.ticker.model.version import Version
from harebell.ticker.plan_writer import SaveResult

STAGE = "stage"
_TRACE_FIELD = '"trace":{'


def record_batch(batch: CommandBatch, *, started_at: datetime, ended_at: datetime) -> None:
    """Record one span for each message of commands with a trace, as a child of its command."""
    if spans.current() is None:
        return
    for message, items in batch.messages:
        if message.traceparent is None:
            continue
        spans.record(
            STAGE,
            "INTERNAL",
            SpanRelation(TraceContext(message.traceparent, message.tracestate)),
            between=(started_at, ended_at),
            attributes={
                "messaging.system": "rabbitmq",
                "messaging.destination.name": CHANGES,
                "messaging.batch.message_count": len(items),
                "harebell.tenant": message.tenant,
            },
        )


def record_pass(saved: SaveResult, *, started_at: datetime, ended_at: datetime) -> None:
    """Record one span of a pass with runs, with links to the commands of its schedules."""
    if spans.current() is None or not saved.tickets:
        return
    versions = (version for step in saved.steps for version in step.versions)
    spans.record(
        STAGE,
        "PRODUCER",
        SpanRelation(None, _contexts(versions)),
        between=(started_at, ended_at),
        attributes={
            "messaging.system": "rabbitmq",
            "messaging.destination.name": DELAY,
            "messaging.operation.type": "send",
            "messaging.operation.name": STAGE,
            "messaging.batch.message_count": len(saved.tickets),
        },
    )


def _contexts(versions: Iterable[Version]) -> tuple[TraceContext, ...]:
    """Return the traces of the first versions that have one, at most `MAX_LINKS`."""
    found: dict[TraceContext, None] = {}
    for version in versions:
        if _TRACE_FIELD in version.run_spec:
            trace = orjson.loads(version.run_spec).get("trace")
            if trace is not None:
                found[TraceContext(trace["traceparent"], trace.get("tracestate"))] = None
        if len(found) == spans.MAX_LINKS:
            break
    return tuple(found)
