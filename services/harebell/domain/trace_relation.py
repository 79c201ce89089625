"""The rule that decides whether the span of an attempt continues the trace of its command."""

from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final, NamedTuple

from harebell.contract.trace import TraceContext, TraceOrigin

MAX_CHILD_WAIT: Final = timedelta(seconds=60)  # from the acceptance of a command to a child span


class TraceMode(StrEnum):
    """The relation of attempts to the trace of their command."""

    AUTO = "auto"  # the first attempt after a short wait is a child span
    PARENT = "parent"  # each attempt is a child span
    LINK = "link"  # no attempt is a child span


class SpanRelation(NamedTuple):
    """The parent of a span, or None for a new trace, and the contexts to which the span links."""

    parent: TraceContext | None
    links: tuple[TraceContext, ...] = ()


NEW_TRACE: Final = SpanRelation(None)


def relation_of(
    origin: TraceOrigin | None,
    previous: TraceContext | None,
    *,
    is_first: bool,
    now: datetime,
    mode: TraceMode = TraceMode.AUTO,
    max_wait: timedelta = MAX_CHILD_WAIT,
) -> SpanRelation:
    """Return the relation of an attempt that starts at `now`.

    `is_first` is true for attempt 1 of a run that is no replay.
    A run of the next day in the trace of its command would give a trace that never ends, and its
    sampling would follow a decision of the day before.
    """
    links = () if previous is None else (previous,)
    if origin is None:
        return SpanRelation(None, links)
    # The clocks of two hosts can differ, so a short negative wait is short too.
    is_child = is_first and now - origin.at < max_wait
    if mode is TraceMode.PARENT or (mode is TraceMode.AUTO and is_child):
        return SpanRelation(origin.context, links)
    return SpanRelation(None, (origin.context, *links))
