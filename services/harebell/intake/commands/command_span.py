"""The span of a command message, to which the runs of its schedules refer."""

from dataclasses import replace
from typing import Final

from harebell.contract.amqp_names import COMMANDS, split_key
from harebell.contract.commands import COMMANDS as COMMAND_MODELS
from harebell.domain.trace_relation import SpanRelation
from harebell.intake.commands.check import CheckResult, IncomingRequest
from harebell.runtime import spans
from harebell.runtime.spans import ActiveSpan

PUT: Final = "schedule.put"
CREATE: Final = "create schedule"  # the name of the span of a put


def start_command(request: IncomingRequest) -> ActiveSpan | None:
    """Start the span of a command, or return None without tracing."""
    tracer = spans.current()
    if tracer is None:
        return None
    tenant, verb = split_key(request.routing_key)
    verb = verb if verb in COMMAND_MODELS else "unknown"
    span = tracer.start(CREATE if verb == PUT else verb, "CONSUMER", SpanRelation(request.trace))
    span.set(
        messaging__system="rabbitmq",
        messaging__operation__type="process",
        messaging__operation__name=verb,
        messaging__destination__name=COMMANDS,
        harebell__tenant=tenant[: spans.MAX_ATTRIBUTE],
    )
    return span


def with_span(request: IncomingRequest, span: ActiveSpan) -> IncomingRequest:
    """Return the request with the trace that its runs keep.

    The context of a command without a publisher's trace is stored only if its span is recorded.
    """
    is_kept = request.trace is not None or span.is_recording
    return replace(request, trace=span.context) if is_kept else request


def end_command(span: ActiveSpan, result: CheckResult) -> None:
    """End the span with the number of items and the code of the first rejection."""
    span.set(messaging__batch__message_count=len(result.accepted.items))
    if result.rejections:
        span.fail(result.rejections[0].response.error.code)
    span.end()
