"""The trace context of requests: of `trace_context`, or of the current span of OpenTelemetry."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final

from harebell.contract.errors import InvalidInput
from harebell.contract.trace import TraceContext, parse_trace

_CURRENT: Final[ContextVar[TraceContext | None]] = ContextVar("trace_context", default=None)
_API: Final = "opentelemetry.trace"


@contextmanager
def trace_context(traceparent: str, tracestate: str | None = None) -> Iterator[None]:
    """Send this context with each request within the block, instead of the current span.

    Raise `InvalidInput` for a `traceparent` that does not have the format of W3C.
    """
    context = parse_trace(traceparent, tracestate)
    if context is None:
        form = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
        reason = f"The traceparent must have a form like {form}, not {traceparent[:80]!r}."
        raise InvalidInput(reason, field="traceparent", code="invalid_traceparent")
    token = _CURRENT.set(context)
    try:
        yield
    finally:
        _CURRENT.reset(token)


def trace_headers() -> dict[str, Any]:
    """Return the headers of the current trace context, or none."""
    context = _CURRENT.get() or _context_of_span()
    return {} if context is None else context.headers()


def _context_of_span() -> TraceContext | None:
    """Return the context of the current span of OpenTelemetry.

    A program that has not imported OpenTelemetry has no span, so the client never imports it.
    """
    api = sys.modules.get(_API)
    if api is None:
        return None
    context = api.get_current_span().get_span_context()
    if not context.is_valid:
        return None
    traceparent = f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"
    return parse_trace(traceparent, context.trace_state.to_header() or None)
