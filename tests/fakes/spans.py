"""Spans in memory, with the SDK of OpenTelemetry and no export."""

from collections.abc import Iterator
from contextlib import contextmanager

from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ParentBased, Sampler, TraceIdRatioBased

from harebell.runtime import spans

NEVER = TraceIdRatioBased(0)


class RecordedSpans:
    """The finished spans of a block."""

    def __init__(self, root: Sampler | None) -> None:
        self._exporter = InMemorySpanExporter()
        sampler = ParentBased(TraceIdRatioBased(1) if root is None else root)
        provider = TracerProvider(sampler=sampler, shutdown_on_exit=False)
        provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.tracing = spans.Tracing(provider.get_tracer("tests"))

    @property
    def all(self) -> list[ReadableSpan]:
        return list(self._exporter.get_finished_spans())

    def one(self, name: str) -> ReadableSpan:
        [span] = [span for span in self.all if span.name == name]
        return span


@contextmanager
def recorded_spans(root: Sampler | None = None) -> Iterator[RecordedSpans]:
    """Trace the block. `root` samples new traces, and by default each one is recorded."""
    recorded = RecordedSpans(root)
    spans.use(recorded.tracing)
    try:
        yield recorded
    finally:
        spans.use(None)


def ids(span: ReadableSpan) -> tuple[str, str]:
    """Return the trace id and the span id in hexadecimal."""
    context = span.get_span_context()
    assert context is not None
    return f"{context.trace_id:032x}", f"{context.span_id:016x}"


def parent_id(span: ReadableSpan) -> str | None:
    return None if span.parent is None else f"{span.parent.span_id:016x}"


def link_ids(span: ReadableSpan) -> list[str]:
    return [f"{link.context.span_id:016x}" for link in span.links]
