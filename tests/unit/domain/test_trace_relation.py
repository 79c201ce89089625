"""Tests of the relation of an attempt to the trace of its command."""

from datetime import timedelta

import pytest
from tests.fakes.tickets import NINE, after

from harebell.contract.trace import TraceContext, TraceOrigin
from harebell.domain.trace_relation import SpanRelation, TraceMode, relation_of

COMMAND = TraceContext("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "a=1")
PREVIOUS = TraceContext("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")
ORIGIN = TraceOrigin(traceparent=COMMAND.traceparent, tracestate="a=1", at=NINE)
CHILD = SpanRelation(COMMAND)
LINKED = SpanRelation(None, (COMMAND,))


@pytest.mark.parametrize(
    ("seconds", "relation"),
    [(-5, CHILD), (0, CHILD), (59.999, CHILD), (60, LINKED), (86_400, LINKED)],
)
def test_first_attempt_is_a_child_of_its_command_only_after_a_short_wait(
    seconds: float, relation: SpanRelation
) -> None:
    assert relation_of(ORIGIN, None, is_first=True, now=after(seconds)) == relation


def test_later_attempt_is_a_new_trace_with_links_to_the_command_and_the_previous_attempt() -> None:
    relation = relation_of(ORIGIN, PREVIOUS, is_first=False, now=after(1))

    assert relation == SpanRelation(None, (COMMAND, PREVIOUS))


@pytest.mark.parametrize(
    ("mode", "is_first", "seconds", "parent"),
    [
        (TraceMode.PARENT, True, 3600, COMMAND),
        (TraceMode.PARENT, False, 1, COMMAND),
        (TraceMode.LINK, True, 0, None),
    ],
)
def test_mode_replaces_the_rule(
    mode: TraceMode, *, is_first: bool, seconds: float, parent: TraceContext | None
) -> None:
    relation = relation_of(ORIGIN, PREVIOUS, is_first=is_first, now=after(seconds), mode=mode)

    assert relation.parent == parent
    assert (COMMAND in relation.links) is (parent is None)
    assert PREVIOUS in relation.links


def test_bound_of_the_wait_is_a_setting() -> None:
    bound = timedelta(seconds=5)

    assert relation_of(ORIGIN, None, is_first=True, now=after(4), max_wait=bound) == CHILD
    assert relation_of(ORIGIN, None, is_first=True, now=after(5), max_wait=bound) == LINKED


def test_run_without_a_traced_command_links_to_its_previous_attempt_only() -> None:
    assert relation_of(None, None, is_first=True, now=NINE) == SpanRelation(None)
    assert relation_of(None, PREVIOUS, is_first=False, now=NINE) == SpanRelation(None, (PREVIOUS,))
