"""Spans of OpenTelemetry, and no work without them.

A process traces after a call of `use`. Only then does any module of OpenTelemetry
load, so the extra `harebell[otel]` may be missing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from harebell.contract.errors import InvalidInput
from harebell.contract.trace import TraceContext, TraceOrigin
from harebell.domain.trace_relation import (
    MAX_CHILD_WAIT,
    NEW_TRACE,
    SpanRelation,
    TraceMode,
    relation_of,
)

if TYPE_CHECKING:
    from opentelemetry.trace import Span, Tracer

EXTRA_MISSING: Final = (
    "The setting needs the packages of OpenTelemetry: pip install 'harebell[otel]'."
)
MAX_LINKS: Final = 32  # of one span
MAX_ATTRIBUTE: Final = 256  # characters of a text
NANOSECONDS: Final = 1_000_000_000

Attributes: TypeAlias = Mapping[str, str | int | float | bool]


@dataclass(frozen=True, slots=True)
class TracePolicy:
    """The relation of attempts to the trace of their command, in every executor of a process."""

    mode: TraceMode = TraceMode.AUTO
    max_wait: timedelta = MAX_CHILD_WAIT

    def relation(
        self,
        origin: TraceOrigin | None,
        previous: TraceContext | None,
        *,
        is_first: bool,
        now: datetime,
    ) -> SpanRelation:
        """Return the relation of an attempt. Most attempts have neither origin nor previous one."""
        if origin is None and previous is None:
            return NEW_TRACE
        return relation_of(
            origin, previous, is_first=is_first, now=now, mode=self.mode, max_wait=self.max_wait
        )


class Api(NamedTuple):
    """The modules of OpenTelemetry, which only a process with tracing loads."""

    context: Any
    trace: Any


class ActiveSpan:
    """A span that has started, and its context as text."""

    def __init__(self, span: Span, api: Api) -> None:
        self._span = span
        self._api = api
        context = span.get_span_context()
        state = context.trace_state
        self.is_recording = span.is_recording()
        self.context = TraceContext(
            f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags & 1:02x}",
            state.to_header() if state else None,
        )

    def set(self, **attributes: str | float | bool) -> None:
        """Set attributes. Two underscores in a name are a dot in the name of the attribute."""
        if self.is_recording:
            named = {name.replace("__", "."): value for name, value in attributes.items()}
            self._span.set_attributes(named)

    def fail(self, code: str) -> None:
        """Mark the span as failed. The code is one word, which contains no data of users."""
        if self.is_recording:
            self._span.set_attribute("error.type", code[:MAX_ATTRIBUTE])
            self._span.set_status(self._api.trace.StatusCode.ERROR)

    def end(self, at: datetime | None = None) -> None:
        self._span.end(None if at is None else _nanoseconds(at))

    def attach(self) -> Any:  # noqa: ANN401  # an optional type
        """Make the span the current one, so that spans of tasks are its children.

        Return the token for `detach`. A context manager would cost four times as much.
        """
        return self._api.context.attach(self._api.trace.set_span_in_context(self._span))

    def detach(self, token: Any) -> None:  # noqa: ANN401  # an optional type
        """Make the earlier span the current one again."""
        self._api.context.detach(token)


class Tracing:
    """The tracer of a process, over the programming interface of OpenTelemetry."""

    def __init__(self, tracer: Tracer) -> None:
        from opentelemetry import context, trace  # noqa: PLC0415  # an optional package

        self._tracer = tracer
        self._api = Api(context, trace)
        self._trace = trace
        self._no_context = context.Context()
        self._kinds = {kind.name: kind for kind in trace.SpanKind}

    def start(
        self,
        name: str,
        kind: str,
        relation: SpanRelation = NEW_TRACE,
        *,
        attributes: Attributes | None = None,
        at: datetime | None = None,
    ) -> ActiveSpan:
        """Start a span. `kind` is the name of a `SpanKind`."""
        if relation is NEW_TRACE:
            began = None if at is None else _nanoseconds(at)
            kind_of_span = self._kinds[kind]
            span = self._tracer.start_span(
                name, self._no_context, kind_of_span, attributes, start_time=began
            )
            return ActiveSpan(span, self._api)
        context = self._no_context
        if relation.parent is not None:
            parent = self._trace.NonRecordingSpan(self._span_context(relation.parent))
            context = self._trace.set_span_in_context(parent, self._no_context)
        links = [self._trace.Link(self._span_context(link)) for link in relation.links[:MAX_LINKS]]
        span = self._tracer.start_span(
            name,
            context,
            self._kinds[kind],
            attributes=attributes,
            links=links or None,
            start_time=None if at is None else _nanoseconds(at),
        )
        return ActiveSpan(span, self._api)

    def _span_context(self, context: TraceContext) -> Any:  # noqa: ANN401  # an optional type
        trace = self._trace
        state = context.tracestate
        return trace.SpanContext(
            int(context.trace_id, 16),
            int(context.span_id, 16),
            is_remote=True,
            trace_flags=trace.TraceFlags(int(context.is_sampled)),
            trace_state=None if state is None else trace.TraceState.from_header([state]),
        )


_current: Tracing | None = None


def current() -> Tracing | None:
    """Return the tracing of this process, or None without tracing."""
    return _current


def use(tracing: Tracing | None) -> None:
    """Set the tracing of this process, or end it with None."""
    global _current  # noqa: PLW0603  # one per process, set once at start
    _current = tracing


def record(
    name: str,
    kind: str,
    relation: SpanRelation = NEW_TRACE,
    *,
    between: Sequence[datetime],
    attributes: Attributes | None = None,
) -> None:
    """Record a span that has ended, if this process traces."""
    if _current is not None:
        started_at, ended_at = between
        _current.start(name, kind, relation, attributes=attributes, at=started_at).end(ended_at)


def missing_extra(field: str) -> InvalidInput:
    """Return the error of a setting that needs the extra."""
    return InvalidInput(EXTRA_MISSING, field=field, code="invalid_setting")


def _nanoseconds(at: datetime) -> int:
    return int(at.timestamp() * NANOSECONDS)
