"""One breaker: opens on a ratio of many attempts, rests, probes, closes."""

from datetime import datetime, timedelta

import pytest
from tests.fakes.tickets import NINE, after

from harebell.contract.breakers import BreakerState
from harebell.dispatcher.breakers.breaker import PROBE_INTERVAL, Breaker, BreakerConfig

RULE = BreakerConfig(
    window=timedelta(seconds=10),
    min_calls=4,
    failure_ratio=0.5,
    open_duration=timedelta(seconds=30),
    half_open_calls=2,
)


def judged(*attempts: bool, at: datetime = NINE) -> Breaker:
    breaker = Breaker(config=RULE)
    for healthy in attempts:
        breaker.record_outcome(at, healthy=healthy)
    return breaker


def half_open() -> Breaker:
    """Both probes are on their way."""
    breaker = judged(*[False] * 4)
    assert breaker.deferral(after(30)) is None
    assert breaker.deferral(after(30)) is None
    return breaker


@pytest.mark.requirement("S113")
@pytest.mark.parametrize(
    ("attempts", "state"),
    [
        ([], BreakerState.CLOSED),
        ([False] * 3, BreakerState.CLOSED),  # too few to say
        ([False] * 4, BreakerState.OPEN),
        ([True, True, False, False], BreakerState.OPEN),
        ([True, True, True, False], BreakerState.CLOSED),
        ([True, True, True, False, False, False], BreakerState.OPEN),
    ],
)
def test_it_opens_when_a_part_of_enough_attempts_has_failed(
    attempts: list[bool], state: BreakerState
) -> None:
    assert judged(*attempts).state is state


@pytest.mark.requirement("S113")
def test_what_failed_before_the_window_counts_no_more() -> None:
    breaker = judged(*[False] * 3)

    breaker.record_outcome(after(11), healthy=False)

    assert breaker.state is BreakerState.CLOSED


@pytest.mark.requirement("S113")
def test_while_open_runs_wait_until_it_is_over() -> None:
    breaker = judged(*[False] * 4)

    assert breaker.deferral(after(1)) == timedelta(seconds=29)
    assert (breaker.failed, breaker.attempts) == (4, 4)


def test_what_had_begun_before_it_opened_says_nothing_more() -> None:
    breaker = judged(*[False] * 4)
    for healthy in (True, False, True, True):
        breaker.record_outcome(after(1), healthy=healthy)

    assert breaker.state is BreakerState.OPEN
    assert breaker.since == NINE


@pytest.mark.requirement("S113")
def test_after_its_rest_a_few_are_let_through() -> None:
    breaker = half_open()

    assert breaker.state is BreakerState.HALF_OPEN
    assert breaker.deferral(after(31)) == PROBE_INTERVAL


@pytest.mark.requirement("S113")
def test_as_many_successes_as_probes_close_it() -> None:
    breaker = half_open()

    breaker.record_outcome(after(31), healthy=True)
    before = breaker.state
    breaker.record_outcome(after(31), healthy=True)

    assert (before, breaker.state) == (BreakerState.HALF_OPEN, BreakerState.CLOSED)
    assert breaker.deferral(after(31)) is None


@pytest.mark.requirement("S113")
def test_a_probe_that_fails_opens_it_for_another_rest() -> None:
    breaker = half_open()

    breaker.record_outcome(after(31), healthy=True)
    breaker.record_outcome(after(31), healthy=False)

    assert breaker.state is BreakerState.OPEN
    assert breaker.deferral(after(32)) == timedelta(seconds=29)


def test_when_nothing_comes_of_its_probes_others_are_let_through() -> None:
    breaker = half_open()

    assert breaker.deferral(after(59)) == PROBE_INTERVAL
    assert breaker.deferral(after(60)) is None


def test_once_closed_it_is_judged_afresh() -> None:
    breaker = half_open()
    for _ in range(2):
        breaker.record_outcome(after(31), healthy=True)

    for _ in range(3):
        breaker.record_outcome(after(32), healthy=False)

    assert breaker.state is BreakerState.CLOSED


def test_what_another_has_found_later_is_taken_over_and_what_is_older_is_not() -> None:
    breaker = judged(*[False] * 4)

    breaker.apply_remote_state(BreakerState.CLOSED, after(-1), failed=0, attempts=0)
    stayed = breaker.state
    breaker.apply_remote_state(BreakerState.CLOSED, after(5), failed=4, attempts=4)

    assert (stayed, breaker.state, breaker.since) == (
        BreakerState.OPEN,
        BreakerState.CLOSED,
        after(5),
    )


def test_it_is_forgotten_when_it_has_long_been_closed_and_nothing_fails() -> None:
    breaker = judged(*[False])
    hour = timedelta(hours=1)

    assert not breaker.can_be_dropped(after(1), after=hour)
    assert breaker.can_be_dropped(after(11), after=hour)
    assert not judged(*[False] * 4).can_be_dropped(after(86_400), after=hour)
