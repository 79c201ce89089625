"""All breakers of a dispatcher: who is held, who is not, and what others are told."""

from datetime import datetime, timedelta
from typing import Any

import pytest
from tests.fakes.tickets import NINE, after, routed

from harebell.contract.breakers import (
    BreakerEventData,
    BreakerSnapshot,
    BreakerSnapshotEntry,
    BreakerState,
)
from harebell.dispatcher.breakers.breaker import BreakerConfig
from harebell.dispatcher.breakers.registry import BREAKER_GATE, MAX_BREAKERS, BreakerRegistry
from harebell.dispatcher.release.gates import Deferral

ECHO = "task:harebell.echo"  # whom the tickets of tests call
OTHER = "http:acme.example"
RULE = BreakerConfig(min_calls=2, open_duration=timedelta(seconds=30), half_open_calls=1)


def down(*names: str, at: datetime = NINE) -> BreakerRegistry:
    breakers = BreakerRegistry(RULE)
    for name in names:
        for _ in range(RULE.min_calls):
            breakers.record_outcome(name, at, healthy=False)
    return breakers


def standing(as_of: datetime = NINE, **fields: Any) -> BreakerSnapshot:
    return BreakerSnapshot(as_of=as_of, breakers=[BreakerSnapshotEntry(downstream=ECHO, **fields)])


@pytest.mark.requirement("S113")
def test_runs_to_whom_it_is_open_are_held_and_others_leave() -> None:
    assert down(ECHO).deferral(routed(), after(1)) == Deferral(BREAKER_GATE, timedelta(seconds=29))
    assert down(OTHER).deferral(routed(), after(1)) is None


def test_it_is_idle_until_something_is_held() -> None:
    breakers = down()
    breakers.record_outcome(ECHO, NINE, healthy=False)
    before = breakers.is_idle(NINE)
    breakers.record_outcome(ECHO, NINE, healthy=False)

    assert before
    assert not breakers.is_idle(NINE)


def test_who_has_not_failed_is_not_watched() -> None:
    breakers = BreakerRegistry(RULE)

    breakers.record_outcome(ECHO, NINE, healthy=True)

    assert not breakers.needs_successes


def test_only_so_many_are_watched() -> None:
    breakers = down(*(f"task:{number}" for number in range(MAX_BREAKERS)))

    breakers.record_outcome(ECHO, NINE, healthy=False)
    breakers.record_outcome(ECHO, NINE, healthy=False)

    assert breakers.deferral(routed(), NINE) is None


def test_each_transition_is_told_once() -> None:
    breakers = down(ECHO)

    (told,) = breakers.take_unpublished()

    assert (told.downstream, told.state, told.since) == (ECHO, BreakerState.OPEN, NINE)
    assert (told.failed, told.attempts) == (2, 2)
    assert breakers.take_unpublished() == []


def test_what_another_dispatcher_tells_is_followed_and_not_told_again() -> None:
    breakers = BreakerRegistry(RULE)

    breakers.apply_event(BreakerEventData(downstream=ECHO, state=BreakerState.OPEN, since=NINE))

    assert breakers.deferral(routed(), after(1)) is not None
    assert breakers.take_unpublished() == []


@pytest.mark.requirement("S113")
def test_what_is_forced_open_is_held_until_then_however_healthy() -> None:
    breakers = BreakerRegistry(RULE)
    breakers.apply_snapshot(standing(forced="open", forced_until=after(10)))

    assert breakers.deferral(routed(), after(4)) == Deferral(BREAKER_GATE, timedelta(seconds=6))
    assert breakers.deferral(routed(), after(10)) is None  # whether or not a ticker says so


@pytest.mark.requirement("S113")
def test_what_is_forced_closed_passes_however_it_fails() -> None:
    breakers = down(ECHO)
    breakers.apply_snapshot(standing(forced="closed"))

    assert breakers.deferral(routed(), after(1)) is None


@pytest.mark.requirement("S113")
def test_what_is_no_longer_forced_is_as_attempts_have_it() -> None:
    breakers = down(ECHO)
    breakers.apply_snapshot(standing(forced="closed"))

    breakers.apply_snapshot(BreakerSnapshot(as_of=after(1)))

    assert breakers.deferral(routed(), after(2)) is not None


def test_an_older_word_does_not_undo_a_newer_one() -> None:
    breakers = BreakerRegistry(RULE)
    breakers.apply_snapshot(standing(after(1), forced="open"))

    breakers.apply_snapshot(BreakerSnapshot(as_of=NINE))

    assert breakers.deferral(routed(), after(2)) is not None


def test_a_dispatcher_that_starts_takes_over_what_is_stored() -> None:
    breakers = BreakerRegistry(RULE)

    breakers.apply_snapshot(standing(after(5), state="open", since=NINE))

    assert breakers.deferral(routed(), after(6)) == Deferral(BREAKER_GATE, timedelta(seconds=24))


def test_what_was_not_stored_is_told_again() -> None:
    breakers = down(ECHO)
    lost = breakers.take_unpublished()

    breakers.apply_snapshot(BreakerSnapshot(as_of=after(5)))

    assert breakers.take_unpublished() == lost


def test_where_only_people_decide_failures_open_nothing() -> None:
    breakers = BreakerRegistry(RULE, automatic=False)
    for _ in range(9):
        breakers.record_outcome(ECHO, NINE, healthy=False)

    assert breakers.deferral(routed(), after(1)) is None


def test_what_it_shows_is_what_is_done() -> None:
    breakers = down(ECHO, OTHER)
    breakers.apply_snapshot(standing(forced="closed"))

    assert dict(breakers.not_closed(after(1))) == {OTHER: BreakerState.OPEN}


def test_the_quiet_are_forgotten_and_the_open_are_not() -> None:
    breakers = down(ECHO)
    breakers.record_outcome(OTHER, NINE, healthy=False)

    breakers.prune(after(86_400))

    assert breakers.deferral(routed(), after(1)) is not None
    assert [fact.downstream for fact in breakers.take_unpublished()] == [ECHO]
