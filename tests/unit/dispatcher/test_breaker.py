"""Tests of one breaker: it opens after failures, lets probes through, and closes."""

from dataclasses import replace
from datetime import datetime, timedelta

import pytest
from tests.fakes.tickets import NINE, after

from harebell.contract.breakers import BreakerReason, BreakerState
from harebell.dispatcher.breakers.breaker import (
    MAX_FAILURE_GAP,
    PROBE_INTERVAL,
    Breaker,
    BreakerConfig,
)

CONFIG = BreakerConfig(
    window=timedelta(seconds=10),
    min_calls=4,
    failure_ratio=0.5,
    consecutive_failures=0,
    open_duration=timedelta(seconds=30),
    half_open_calls=2,
)
QUIET = BreakerConfig(min_calls=20, consecutive_failures=5)  # a downstream with little traffic


def breaker_after(*outcomes: bool, at: datetime = NINE) -> Breaker:
    breaker = Breaker(config=CONFIG)
    for healthy in outcomes:
        breaker.record_outcome(at, healthy=healthy)
    return breaker


def half_open() -> Breaker:
    """A breaker whose two probes have no outcome yet."""
    breaker = breaker_after(*[False] * 4)
    assert breaker.deferral(after(30)) is None
    assert breaker.deferral(after(30)) is None
    return breaker


@pytest.mark.requirement("S113")
@pytest.mark.parametrize(
    ("outcomes", "state"),
    [
        ([], BreakerState.CLOSED),
        ([False] * 3, BreakerState.CLOSED),  # fewer than `min_calls`
        ([False] * 4, BreakerState.OPEN),
        ([True, True, False, False], BreakerState.OPEN),
        ([True, True, True, False], BreakerState.CLOSED),
        ([True, True, True, False, False, False], BreakerState.OPEN),
    ],
)
def test_breaker_opens_when_enough_attempts_failed(
    outcomes: list[bool], state: BreakerState
) -> None:
    assert breaker_after(*outcomes).state is state


@pytest.mark.requirement("S113")
def test_failure_does_not_count_after_its_window() -> None:
    breaker = breaker_after(*[False] * 3)

    breaker.record_outcome(after(11), healthy=False)

    assert breaker.state is BreakerState.CLOSED


@pytest.mark.requirement("S113")
def test_open_breaker_defers_until_its_open_duration_ends() -> None:
    breaker = breaker_after(*[False] * 4)

    assert breaker.deferral(after(1)) == timedelta(seconds=29)
    assert (breaker.failed, breaker.attempts) == (4, 4)


def test_open_breaker_ignores_outcomes_of_earlier_attempts() -> None:
    breaker = breaker_after(*[False] * 4)
    for healthy in (True, False, True, True):
        breaker.record_outcome(after(1), healthy=healthy)

    assert breaker.state is BreakerState.OPEN
    assert breaker.since == NINE


@pytest.mark.requirement("S113")
def test_breaker_is_half_open_after_its_open_duration() -> None:
    breaker = half_open()

    assert breaker.state is BreakerState.HALF_OPEN
    assert breaker.deferral(after(31)) == PROBE_INTERVAL


@pytest.mark.requirement("S113")
def test_breaker_closes_when_each_probe_succeeded() -> None:
    breaker = half_open()

    breaker.record_outcome(after(31), healthy=True)
    before = breaker.state
    breaker.record_outcome(after(31), healthy=True)

    assert (before, breaker.state) == (BreakerState.HALF_OPEN, BreakerState.CLOSED)
    assert breaker.deferral(after(31)) is None


@pytest.mark.requirement("S113")
def test_breaker_opens_again_when_a_probe_fails() -> None:
    breaker = half_open()

    breaker.record_outcome(after(31), healthy=True)
    breaker.record_outcome(after(31), healthy=False)

    assert breaker.state is BreakerState.OPEN
    assert breaker.deferral(after(32)) == timedelta(seconds=29)


def test_half_open_breaker_sends_new_probes_when_no_outcome_arrives() -> None:
    breaker = half_open()

    assert breaker.deferral(after(59)) == PROBE_INTERVAL
    assert breaker.deferral(after(60)) is None


def test_closed_breaker_counts_from_zero() -> None:
    breaker = half_open()
    for _ in range(2):
        breaker.record_outcome(after(31), healthy=True)

    for _ in range(3):
        breaker.record_outcome(after(32), healthy=False)

    assert breaker.state is BreakerState.CLOSED


def test_breaker_adopts_only_a_newer_remote_state() -> None:
    breaker = breaker_after(*[False] * 4)

    breaker.apply_remote_state(BreakerState.CLOSED, after(-1), failed=0, attempts=0)
    after_older_state = breaker.state
    breaker.apply_remote_state(BreakerState.CLOSED, after(5), failed=4, attempts=4)

    assert after_older_state is BreakerState.OPEN
    assert (breaker.state, breaker.since) == (BreakerState.CLOSED, after(5))


def test_breaker_can_be_dropped_when_it_is_closed_and_its_window_has_no_failure() -> None:
    breaker = breaker_after(*[False] * 1)
    hour = timedelta(hours=1)

    assert not breaker.can_be_dropped(after(1), after=hour)
    assert breaker.can_be_dropped(after(11), after=hour)
    assert not breaker_after(*[False] * 4).can_be_dropped(after(86_400), after=hour)


@pytest.mark.requirement("S113")
def test_breaker_with_few_attempts_opens_after_consecutive_failures() -> None:
    breaker = Breaker(config=QUIET)
    states = []
    for number in range(5):
        breaker.record_outcome(after(600 * number), healthy=False)
        states.append(breaker.state)

    assert states == [BreakerState.CLOSED] * 4 + [BreakerState.OPEN]
    assert (breaker.failed, breaker.attempts) == (5, 5)
    assert breaker.reason is BreakerReason.CONSECUTIVE_FAILURES


@pytest.mark.requirement("S113")
def test_success_resets_the_consecutive_failures() -> None:
    breaker = Breaker(config=QUIET)
    for healthy in [False] * 4 + [True] + [False] * 4:
        breaker.record_outcome(NINE, healthy=healthy)

    assert breaker.state is BreakerState.CLOSED


@pytest.mark.requirement("S113")
def test_failures_with_a_long_gap_are_not_consecutive() -> None:
    breaker, gap = Breaker(config=QUIET), MAX_FAILURE_GAP + timedelta(seconds=1)
    for _ in range(4):
        breaker.record_outcome(NINE, healthy=False)
    breaker.record_outcome(NINE + gap, healthy=False)

    assert breaker.state is BreakerState.CLOSED
    assert not breaker.can_be_dropped(NINE + gap, after=timedelta(hours=1))
    assert breaker.can_be_dropped(NINE + 3 * gap, after=timedelta(hours=1))


@pytest.mark.requirement("S113")
def test_consecutive_failures_do_not_open_the_breaker_of_a_busy_downstream() -> None:
    breaker = Breaker(config=QUIET)
    for healthy in [True] * 20 + [False] * 9:
        breaker.record_outcome(NINE, healthy=healthy)

    assert breaker.state is BreakerState.CLOSED


@pytest.mark.requirement("S113")
def test_consecutive_failures_open_no_breaker_when_the_setting_is_zero() -> None:
    breaker = Breaker(config=BreakerConfig(consecutive_failures=0))
    for _ in range(19):
        breaker.record_outcome(NINE, healthy=False)

    assert breaker.state is BreakerState.CLOSED


@pytest.mark.requirement("S113")
def test_consecutive_failures_before_the_opening_do_not_count_after_the_closing() -> None:
    breaker = Breaker(config=replace(QUIET, half_open_calls=1))
    for _ in range(5):
        breaker.record_outcome(NINE, healthy=False)
    assert breaker.deferral(after(30)) is None
    breaker.record_outcome(after(31), healthy=True)

    for _ in range(4):
        breaker.record_outcome(after(32), healthy=False)

    assert breaker.state is BreakerState.CLOSED


def test_next_probe_is_at_the_end_of_the_open_duration() -> None:
    breaker = breaker_after(*[False] * 4)

    assert breaker.next_probe_at() == after(30)
    assert half_open().next_probe_at() is None
