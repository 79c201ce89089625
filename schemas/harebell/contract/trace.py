"""The trace context of a command (W3C Trace Context), to which the spans of its runs refer."""

import re
from collections.abc import Mapping
from typing import Final, NamedTuple

from harebell.contract.message import Message
from harebell.contract.types import Instant

# AMQP headers of commands, and headers of the calls of targets.
TRACEPARENT: Final = "traceparent"
TRACESTATE: Final = "tracestate"

MAX_TRACESTATE: Final = 512  # characters; the number that W3C requires at least
MAX_TRACESTATE_MEMBERS: Final = 32

_TRACEPARENT: Final = re.compile(
    r"(?P<version>[0-9a-f]{2})-(?P<trace_id>[0-9a-f]{32})-(?P<span_id>[0-9a-f]{16})"
    r"-(?P<flags>[0-9a-f]{2})(?P<rest>-.*)?",
    re.ASCII | re.DOTALL,
)
_MAX_TRACEPARENT: Final = 256  # characters of a later version of the format
_INVALID_VERSION: Final = "ff"
_NO_TRACE: Final = "0" * 32
_NO_SPAN: Final = "0" * 16
_SAMPLED: Final = 1
_MEMBER: Final = re.compile(r"[a-z0-9][a-z0-9_\-*/@]{0,255}=[\x20-\x2b\x2d-\x3c\x3e-\x7e]{0,256}")


class TraceContext(NamedTuple):
    """The trace id, the span id and the flags of a span as text, and the state of vendors."""

    traceparent: str
    tracestate: str | None = None

    @property
    def trace_id(self) -> str:
        """Return the trace id as 32 hexadecimal digits."""
        return self.traceparent[3:35]

    @property
    def span_id(self) -> str:
        """Return the span id as 16 hexadecimal digits."""
        return self.traceparent[36:52]

    @property
    def is_sampled(self) -> bool:
        """Return whether the sender records the span."""
        return bool(int(self.traceparent[53:55], 16) & _SAMPLED)

    def headers(self) -> dict[str, str]:
        """Return the headers that carry the context."""
        if self.tracestate is None:
            return {TRACEPARENT: self.traceparent}
        return {TRACEPARENT: self.traceparent, TRACESTATE: self.tracestate}


class TraceOrigin(Message):
    """The context of the command that made a version or a manual run, and its acceptance."""

    traceparent: str
    tracestate: str | None = None
    at: Instant

    @property
    def context(self) -> TraceContext:
        return TraceContext(self.traceparent, self.tracestate)


def read_trace(headers: Mapping[str, object]) -> TraceContext | None:
    """Return the context in the headers of a message, or None.

    An invalid value is ignored, because a wrong trace must not prevent a command.
    """
    value = headers.get(TRACEPARENT)
    if value is None:
        return None
    return parse_trace(value, headers.get(TRACESTATE))


def parse_trace(traceparent: object, tracestate: object = None) -> TraceContext | None:
    """Return the context, or None for an invalid `traceparent`. Omit an invalid `tracestate`."""
    text = _text(traceparent)
    if text is None or len(text) > _MAX_TRACEPARENT:
        return None
    match = _TRACEPARENT.fullmatch(text.strip())
    if match is None or match["version"] == _INVALID_VERSION:
        return None
    if match["version"] == "00" and match["rest"] is not None:
        return None
    if match["trace_id"] == _NO_TRACE or match["span_id"] == _NO_SPAN:
        return None
    # Only the flag of version 00 has a meaning here, so the text has the form of version 00.
    flags = int(match["flags"], 16) & _SAMPLED
    return TraceContext(
        f"00-{match['trace_id']}-{match['span_id']}-{flags:02x}", _tracestate(tracestate)
    )


def _tracestate(value: object) -> str | None:
    """Return the list of vendors with their values, or None if the list is invalid or too long."""
    text = _text(value)
    if not text or len(text) > MAX_TRACESTATE:
        return None
    members = [member.strip(" \t") for member in text.split(",")]
    members = [member for member in members if member]
    keys = {member.partition("=")[0] for member in members}
    if not members or len(members) > MAX_TRACESTATE_MEMBERS or len(keys) < len(members):
        return None
    return ",".join(members) if all(map(_MEMBER.fullmatch, members)) else None


def _text(value: object) -> str | None:
    """Return the text of a header, which some clients send as bytes."""
    if isinstance(value, bytes):
        return value.decode("ascii", errors="replace")
    return value if isinstance(value, str) else None
