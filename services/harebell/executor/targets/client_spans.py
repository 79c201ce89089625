"""The spans of calls: one for each HTTP request and one for each AMQP message.

The names and the attributes are those of the semantic conventions of OpenTelemetry. No attribute
contains a path, a query, a header or a body, because users may write secrets there.
"""

from http import HTTPStatus

from harebell.contract.target import AmqpMessage
from harebell.contract.trace import TraceContext
from harebell.domain.trace_relation import SpanRelation
from harebell.executor.targets.attempt import AttemptContext
from harebell.executor.targets.http_request import HttpRequest
from harebell.runtime import spans
from harebell.runtime.spans import ActiveSpan


def start_request(
    request: HttpRequest, trace: TraceContext | None, redirects: int
) -> ActiveSpan | None:
    """Start the span of a request, or return None without a recorded attempt.

    The headers of the request then keep the context of the attempt.
    """
    tracer = spans.current()
    if tracer is None or trace is None or not trace.is_sampled:
        return None
    return tracer.start(
        request.method,
        "CLIENT",
        SpanRelation(trace),
        attributes={
            "http.request.method": request.method,
            "server.address": (request.url.host or "")[: spans.MAX_ATTRIBUTE],
            "server.port": request.url.port or 0,
            "url.scheme": request.url.scheme,
            **({"http.request.resend_count": redirects} if redirects else {}),
        },
    )


def describe_response(span: ActiveSpan, status: int) -> None:
    """Set the status of the response."""
    span.set(http__response__status_code=status)
    if status >= HTTPStatus.BAD_REQUEST:
        span.fail(str(status))


def start_send(message: AmqpMessage, attempt: AttemptContext) -> ActiveSpan | None:
    """Start the span of a published message, or return None without a recorded attempt."""
    tracer = spans.current()
    if tracer is None or attempt.trace is None or not attempt.trace.is_sampled:
        return None
    exchange = message.exchange[: spans.MAX_ATTRIBUTE]
    return tracer.start(
        f"send {exchange}",
        "PRODUCER",
        SpanRelation(attempt.trace),
        attributes={
            "messaging.system": "rabbitmq",
            "messaging.operation.type": "send",
            "messaging.operation.name": "publish",
            "messaging.destination.name": exchange,
            "messaging.rabbitmq.destination.routing_key": message.routing_key[
                : spans.MAX_ATTRIBUTE
            ],
            "messaging.message.id": attempt.ticket.run_id,
        },
    )
