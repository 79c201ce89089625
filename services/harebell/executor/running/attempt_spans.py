"""The span of an attempt, whose context the target receives."""

from dataclasses import dataclass, field
from datetime import datetime
from typing import assert_never

from harebell.contract.amqp_names import WORK
from harebell.contract.trace import TraceContext
from harebell.contract.types import instant_text
from harebell.domain.retry import Failure
from harebell.executor.model.claimed_run import ClaimedRun
from harebell.executor.targets.attempt import AttemptOutcome, Delegated, Stopped, Success
from harebell.runtime import spans
from harebell.runtime.spans import ActiveSpan, TracePolicy


@dataclass(frozen=True, slots=True)
class AttemptSpans:
    """The spans `process run` of one executor."""

    policy: TracePolicy = field(default_factory=TracePolicy)

    def start(self, run: ClaimedRun, now: datetime) -> ActiveSpan | None:
        """Start the span of an attempt and set the trace of the run.

        Return None without tracing. The run then passes on the context of its command, if the
        attempt belongs to the trace of the command.
        """
        ticket = run.ticket
        relation = self.policy.relation(
            ticket.origin,
            ticket.previous_attempt,
            is_first=run.attempt == 1 and not ticket.replay_number,
            now=now,
        )
        tracer = spans.current()
        if tracer is None:
            run.trace = relation.parent
            return None
        span = tracer.start("process run", "CONSUMER", relation, at=now)
        run.trace = span.context
        if span.is_recording:
            run.recorded_trace = span.context.traceparent
            span.set(
                messaging__system="rabbitmq",
                messaging__operation__type="process",
                messaging__operation__name="process run",
                messaging__destination__name=WORK,
                messaging__message__id=ticket.run_id,
                harebell__run__id=ticket.run_id,
                harebell__run__attempt=run.attempt,
                harebell__run__replay_number=ticket.replay_number,
                harebell__run__scheduled_for=instant_text(ticket.scheduled_for),
                harebell__run__lateness=(now - ticket.due_at).total_seconds(),
                harebell__tenant=run.tenant,
                harebell__schedule__id=str(ticket.schedule_id),
                harebell__schedule__version=ticket.version,
                harebell__pool=ticket.pool,
                harebell__lane=ticket.lane.value,
                **_key(ticket.run_spec.key),
            )
        return span


def exemplar_of(trace: TraceContext | None) -> dict[str, str] | None:
    """Return the labels of an exemplar, or None for an attempt without a recorded span."""
    if trace is None or not trace.is_sampled:
        return None
    return {"trace_id": trace.trace_id, "span_id": trace.span_id}


def describe_outcome(span: ActiveSpan, outcome: AttemptOutcome | Delegated) -> None:
    """Set the result of the attempt. The text of an error may contain data of users."""
    match outcome:
        case Success() | Delegated():
            return
        case Failure():
            span.fail(outcome.code)
        case Stopped():
            span.fail("stopped")
        case _:
            assert_never(outcome)


def _key(key: str | None) -> dict[str, str]:
    return {} if key is None else {"harebell__schedule__key": key[: spans.MAX_ATTRIBUTE]}
