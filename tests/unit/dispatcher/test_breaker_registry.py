"""Tests of the breakers of a dispatcher: deferred tickets and published events."""

from datetime import datetime, timedelta
from typing import Any

import pytest
from tests.fakes.tickets import NINE, after, header

from harebell.contract.breakers import (
    BreakerEventData,
    BreakerSnapshot,
    BreakerSnapshotEntry,
    BreakerState,
)
from harebell.dispatcher.breakers.breaker import BreakerConfig
from harebell.dispatcher.breakers.registry import BREAKER_GATE, MAX_BREAKERS, BreakerRegistry
from harebell.dispatcher.release.gates import Deferral

ECHO = "task:harebell.echo"  # the downstream of the tickets in tests
OTHER = "http:acme.example"
CONFIG = BreakerConfig(min_calls=2, open_duration=timedelta(seconds=30), half_open_calls=1)


def open_breakers(*downstreams: str, at: datetime = NINE) -> BreakerRegistry:
    """A registry with an open breaker for each downstream."""
    breakers = BreakerRegistry(CONFIG)
    for downstream in downstreams:
        for _ in range(CONFIG.min_calls):
            breakers.record_outcome(downstream, at, healthy=False)
    return breakers


def snapshot(as_of: datetime = NINE, **fields: Any) -> BreakerSnapshot:
    return BreakerSnapshot(as_of=as_of, breakers=[BreakerSnapshotEntry(downstream=ECHO, **fields)])


@pytest.mark.requirement("S113")
def test_registry_defers_only_the_tickets_of_an_open_downstream() -> None:
    assert open_breakers(ECHO).deferral(header(), after(1)) == Deferral(
        BREAKER_GATE, timedelta(seconds=29)
    )
    assert open_breakers(OTHER).deferral(header(), after(1)) is None


def test_registry_is_idle_until_a_breaker_opens() -> None:
    breakers = open_breakers()
    breakers.record_outcome(ECHO, NINE, healthy=False)
    before = breakers.is_idle(NINE)
    breakers.record_outcome(ECHO, NINE, healthy=False)

    assert before
    assert not breakers.is_idle(NINE)


def test_registry_needs_no_successes_of_a_downstream_without_failures() -> None:
    breakers = BreakerRegistry(CONFIG)

    breakers.record_outcome(ECHO, NINE, healthy=True)

    assert not breakers.needs_successes


def test_registry_adds_no_breaker_above_its_limit() -> None:
    breakers = open_breakers(*(f"task:{number}" for number in range(MAX_BREAKERS)))

    breakers.record_outcome(ECHO, NINE, healthy=False)
    breakers.record_outcome(ECHO, NINE, healthy=False)

    assert breakers.deferral(header(), NINE) is None


def test_registry_publishes_each_transition_once() -> None:
    breakers = open_breakers(ECHO)

    (event,) = breakers.take_unpublished()

    assert (event.downstream, event.state, event.since) == (ECHO, BreakerState.OPEN, NINE)
    assert (event.failed, event.attempts) == (2, 2)
    assert breakers.take_unpublished() == []


def test_registry_adopts_a_remote_event_and_does_not_publish_it_again() -> None:
    breakers = BreakerRegistry(CONFIG)

    breakers.apply_event(BreakerEventData(downstream=ECHO, state=BreakerState.OPEN, since=NINE))

    assert breakers.deferral(header(), after(1)) is not None
    assert breakers.take_unpublished() == []


@pytest.mark.requirement("S113")
def test_forced_open_breaker_defers_until_its_end_time() -> None:
    breakers = BreakerRegistry(CONFIG)
    breakers.apply_snapshot(snapshot(forced="open", forced_until=after(10)))

    assert breakers.deferral(header(), after(4)) == Deferral(BREAKER_GATE, timedelta(seconds=6))
    assert breakers.deferral(header(), after(10)) is None  # without a newer snapshot


@pytest.mark.requirement("S113")
def test_forced_closed_breaker_defers_nothing() -> None:
    breakers = open_breakers(ECHO)
    breakers.apply_snapshot(snapshot(forced="closed"))

    assert breakers.deferral(header(), after(1)) is None


@pytest.mark.requirement("S113")
def test_breaker_has_its_own_state_when_it_is_no_longer_forced() -> None:
    breakers = open_breakers(ECHO)
    breakers.apply_snapshot(snapshot(forced="closed"))

    breakers.apply_snapshot(BreakerSnapshot(as_of=after(1)))

    assert breakers.deferral(header(), after(2)) is not None


def test_registry_ignores_an_older_snapshot() -> None:
    breakers = BreakerRegistry(CONFIG)
    breakers.apply_snapshot(snapshot(after(1), forced="open"))

    breakers.apply_snapshot(BreakerSnapshot(as_of=NINE))

    assert breakers.deferral(header(), after(2)) is not None


def test_registry_adopts_the_stored_state_of_a_snapshot() -> None:
    breakers = BreakerRegistry(CONFIG)

    breakers.apply_snapshot(snapshot(after(5), state="open", since=NINE))

    assert breakers.deferral(header(), after(6)) == Deferral(BREAKER_GATE, timedelta(seconds=24))


def test_registry_publishes_a_transition_again_when_a_snapshot_lacks_it() -> None:
    breakers = open_breakers(ECHO)
    published = breakers.take_unpublished()

    breakers.apply_snapshot(BreakerSnapshot(as_of=after(5)))

    assert breakers.take_unpublished() == published


def test_registry_opens_no_breaker_when_it_is_not_automatic() -> None:
    breakers = BreakerRegistry(CONFIG, automatic=False)
    for _ in range(9):
        breakers.record_outcome(ECHO, NINE, healthy=False)

    assert breakers.deferral(header(), after(1)) is None


def test_not_closed_contains_the_effective_states() -> None:
    breakers = open_breakers(ECHO, OTHER)
    breakers.apply_snapshot(snapshot(forced="closed"))

    assert dict(breakers.not_closed(after(1))) == {OTHER: BreakerState.OPEN}


def test_prune_drops_quiet_breakers_and_keeps_open_ones() -> None:
    breakers = open_breakers(ECHO)
    breakers.record_outcome(OTHER, NINE, healthy=False)

    breakers.prune(after(86_400))

    assert breakers.deferral(header(), after(1)) is not None
    assert [event.downstream for event in breakers.take_unpublished()] == [ECHO]
