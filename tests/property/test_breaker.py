"""Whatever comes of attempts, a breaker lets through no more than it should, and comes back."""

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.fakes.tickets import NINE

from harebell.contract.breakers import BreakerState
from harebell.dispatcher.breakers.breaker import Breaker, BreakerConfig

rules = st.builds(
    BreakerConfig,
    window=st.integers(1, 100).map(lambda seconds: timedelta(seconds=seconds)),
    min_calls=st.integers(1, 10),
    failure_ratio=st.floats(0.01, 1),
    open_duration=st.integers(1, 60).map(lambda seconds: timedelta(seconds=seconds)),
    half_open_calls=st.integers(1, 5),
)
steps = st.lists(
    st.tuples(st.sampled_from(["ask", "healthy", "failed"]), st.integers(0, 20_000)), max_size=80
)  # what happens, and how many milliseconds later


def walk(breaker: Breaker, taken: list[tuple[str, int]]) -> list[tuple[timedelta, BreakerState]]:
    """The states, each with its time since nine."""
    now, seen = NINE, [(timedelta(0), breaker.state)]
    for what, wait in taken:
        now += timedelta(milliseconds=wait)
        if what == "ask":
            breaker.deferral(now)
        else:
            breaker.record_outcome(now, healthy=what == "healthy")
        seen.append((now - NINE, breaker.state))
    return seen


@pytest.mark.requirement("S113")
@given(rules, steps)
def test_it_never_leaves_open_before_its_rest_is_over(
    rule: BreakerConfig, taken: list[tuple[str, int]]
) -> None:
    opened_at = None
    for at, state in walk(Breaker(config=rule), taken):
        if state is BreakerState.OPEN:
            opened_at = at if opened_at is None else opened_at
        elif opened_at is not None:
            assert state is BreakerState.HALF_OPEN
            assert at - opened_at >= rule.open_duration - timedelta(milliseconds=1)
            opened_at = None


@pytest.mark.requirement("S113")
@given(rules, steps)
def test_of_a_downstream_that_never_fails_nothing_is_held(
    rule: BreakerConfig, taken: list[tuple[str, int]]
) -> None:
    well = [("healthy" if what == "failed" else what, wait) for what, wait in taken]

    assert {state for _, state in walk(Breaker(config=rule), well)} == {BreakerState.CLOSED}


@pytest.mark.requirement("S113")
@given(rules, steps, st.integers(1, 50))
def test_in_one_rest_no_more_are_let_through_than_probes(
    rule: BreakerConfig, taken: list[tuple[str, int]], asked: int
) -> None:
    breaker = Breaker(config=rule)
    walk(breaker, taken)
    now = max(NINE + timedelta(hours=1), breaker.since)
    if breaker.state is BreakerState.CLOSED:
        return

    passed = sum(breaker.deferral(now) is None for _ in range(asked))

    assert passed == min(asked, rule.half_open_calls)


@pytest.mark.requirement("S113")
@given(rules, steps)
def test_once_its_downstream_is_well_it_closes(
    rule: BreakerConfig, taken: list[tuple[str, int]]
) -> None:
    breaker = Breaker(config=rule)
    walk(breaker, taken)
    now = NINE + timedelta(hours=1)

    for _ in range(2 * rule.half_open_calls):
        now += rule.open_duration
        if breaker.deferral(now) is None:
            breaker.record_outcome(now, healthy=True)

    assert breaker.deferral(now) is None


@given(rules, steps)
def test_transitions_have_instants_of_their_own_in_order(
    rule: BreakerConfig, taken: list[tuple[str, int]]
) -> None:
    breaker, now, seen = (
        Breaker(config=rule),
        NINE,
        [(BreakerState.CLOSED, Breaker(config=rule).since)],
    )
    for what, wait in taken:
        now += timedelta(milliseconds=wait)
        if what == "ask":
            breaker.deferral(now)
        else:
            breaker.record_outcome(now, healthy=what == "healthy")
        if (breaker.state, breaker.since) != seen[-1]:
            seen.append((breaker.state, breaker.since))

    moments = [since for _, since in seen]
    assert moments == sorted(set(moments))
