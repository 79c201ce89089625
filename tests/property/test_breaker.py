"""A breaker sends no more than its probes to a failing downstream, and closes after it recovers."""

from datetime import datetime, timedelta
from typing import TypeAlias

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.fakes.tickets import NINE

from harebell.contract.breakers import BreakerReason, BreakerState
from harebell.dispatcher.breakers.breaker import Breaker, BreakerConfig

Step: TypeAlias = tuple[str, int]  # an action, and the milliseconds before it

configs = st.builds(
    BreakerConfig,
    window=st.integers(1, 100).map(lambda seconds: timedelta(seconds=seconds)),
    min_calls=st.integers(1, 10),
    failure_ratio=st.floats(0.01, 1),
    consecutive_failures=st.integers(0, 8),
    open_duration=st.integers(1, 60).map(lambda seconds: timedelta(seconds=seconds)),
    half_open_calls=st.integers(1, 5),
)
histories = st.lists(
    st.tuples(st.sampled_from(["ticket", "success", "failure"]), st.integers(0, 20_000)),
    max_size=80,
)


def apply(breaker: Breaker, history: list[Step]) -> list[tuple[timedelta, BreakerState]]:
    """Apply the steps, and return the state after each one with the time since the start."""
    now, states = NINE, [(timedelta(0), breaker.state)]
    for action, wait in history:
        now += timedelta(milliseconds=wait)
        if action == "ticket":
            breaker.deferral(now)
        else:
            breaker.record_outcome(now, healthy=action == "success")
        states.append((now - NINE, breaker.state))
    return states


@pytest.mark.requirement("S113")
@given(configs, histories)
def test_breaker_stays_open_for_its_open_duration(
    config: BreakerConfig, history: list[Step]
) -> None:
    opened_at = None
    for at, state in apply(Breaker(config=config), history):
        if state is BreakerState.OPEN:
            opened_at = at if opened_at is None else opened_at
        elif opened_at is not None:
            assert state is BreakerState.HALF_OPEN
            assert at - opened_at >= config.open_duration - timedelta(milliseconds=1)
            opened_at = None


@pytest.mark.requirement("S113")
@given(configs, histories)
def test_breaker_stays_closed_when_no_attempt_fails(
    config: BreakerConfig, history: list[Step]
) -> None:
    healthy = [("success" if action == "failure" else action, wait) for action, wait in history]

    states = {state for _, state in apply(Breaker(config=config), healthy)}

    assert states == {BreakerState.CLOSED}


@pytest.mark.requirement("S113")
@given(configs, histories, st.integers(1, 50))
def test_half_open_breaker_sends_no_more_than_its_probes(
    config: BreakerConfig, history: list[Step], tickets: int
) -> None:
    breaker = Breaker(config=config)
    apply(breaker, history)
    now = max(NINE + timedelta(hours=1), breaker.since)
    if breaker.state is BreakerState.CLOSED:
        return

    probes = sum(breaker.deferral(now) is None for _ in range(tickets))

    assert probes == min(tickets, config.half_open_calls)


@pytest.mark.requirement("S113")
@given(configs, histories)
def test_breaker_closes_when_its_probes_succeed(config: BreakerConfig, history: list[Step]) -> None:
    breaker = Breaker(config=config)
    apply(breaker, history)
    now = NINE + timedelta(hours=1)

    for _ in range(2 * config.half_open_calls):
        now += config.open_duration
        if breaker.deferral(now) is None:
            breaker.record_outcome(now, healthy=True)

    assert breaker.deferral(now) is None


@given(configs, histories)
def test_each_transition_has_a_later_time_than_the_one_before(
    config: BreakerConfig, history: list[Step]
) -> None:
    breaker, now = Breaker(config=config), NINE
    transitions = [(breaker.state, breaker.since)]
    for action, wait in history:
        now += timedelta(milliseconds=wait)
        if action == "ticket":
            breaker.deferral(now)
        else:
            breaker.record_outcome(now, healthy=action == "success")
        if (breaker.state, breaker.since) != transitions[-1]:
            transitions.append((breaker.state, breaker.since))

    times = [since for _, since in transitions]
    assert times == sorted(set(times))


@pytest.mark.requirement("S113")
@given(configs, st.lists(st.tuples(st.booleans(), st.integers(0, 20_000)), max_size=80))
def test_closed_breaker_opens_exactly_when_the_ratio_or_the_consecutive_failures_require_it(
    config: BreakerConfig, outcomes: list[tuple[bool, int]]
) -> None:
    breaker, now, consecutive = Breaker(config=config), NINE, 0
    was_busy = False  # after the last outcome before the opening, with enough failures in a row
    for healthy, wait in outcomes:
        now += timedelta(milliseconds=wait)
        breaker.record_outcome(now, healthy=healthy)
        consecutive = 0 if healthy else consecutive + 1
        if breaker.state is BreakerState.OPEN:
            break
        was_busy = 0 < config.consecutive_failures <= consecutive
        assert not was_busy or is_busy(breaker, now)

    if breaker.reason is BreakerReason.CONSECUTIVE_FAILURES:
        assert consecutive == breaker.failed
        assert consecutive == config.consecutive_failures or was_busy
    elif breaker.reason is not None:
        assert breaker.attempts >= config.min_calls
        assert breaker.failed >= config.failure_ratio * breaker.attempts


def is_busy(breaker: Breaker, now: datetime) -> bool:
    """Return whether the attempts within the window are enough for the failure ratio."""
    return breaker.window.total(now)[1] >= breaker.config.min_calls
