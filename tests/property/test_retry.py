"""The bounds of the waits between attempts."""

from datetime import timedelta
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.fakes.tickets import NINE

from harebell.contract.policy import Backoff, Jitter, RetryPolicy
from harebell.contract.types import MAX_DURATION
from harebell.domain.retry import Dead, Failure, Retry, backoff_wait, decide

ROUNDING = timedelta(microseconds=2)
SHORT = settings(max_examples=100)

waits = st.timedeltas(timedelta(0), MAX_DURATION)
fractions = st.floats(0, 1, exclude_max=True)
factors = st.floats(1, 100)
attempts = st.integers(1, 1000)


@pytest.mark.requirement("S105")
@SHORT
@given(base=waits, factor=factors, cap=waits, attempt=attempts, random_fraction=fractions)
def test_jitter_modes_are_within_their_bounds(
    base: timedelta, factor: float, cap: timedelta, attempt: int, random_fraction: float
) -> None:
    whole, equal, full, additive = (
        backoff_wait(
            Backoff(base=base, factor=factor, cap=cap, jitter=jitter), attempt, random_fraction
        )
        for jitter in (Jitter.NONE, Jitter.EQUAL, Jitter.FULL, Jitter.ADDITIVE)
    )

    assert timedelta(0) <= full <= equal <= whole <= additive <= cap
    assert equal >= whole / 2 - ROUNDING
    assert additive <= whole * 1.25 + ROUNDING


@pytest.mark.requirement("S104", "S105")
@SHORT
@given(base=waits, factor=factors, cap=waits, attempt=attempts, random_fraction=fractions)
def test_default_jitter_never_shortens_a_wait(
    base: timedelta, factor: float, cap: timedelta, attempt: int, random_fraction: float
) -> None:
    backoff = Backoff(base=base, factor=factor, cap=cap)
    failure = Failure("http_error", "HTTP 503")

    decided = decide(
        RetryPolicy(max_attempts=1000, backoff=backoff),
        min(attempt, 999),
        failure,
        now=NINE,
        random_fraction=random_fraction,
    )

    steady = backoff.model_copy(update={"jitter": Jitter.NONE})
    assert isinstance(decided, Retry)
    assert decided.at >= NINE + backoff_wait(steady, min(attempt, 999), 0)


@pytest.mark.requirement("S105")
@SHORT
@given(base=st.timedeltas(timedelta(seconds=1), timedelta(hours=1)), attempt=st.integers(1, 10))
def test_a_thousand_simultaneous_failures_spread_evenly(base: timedelta, attempt: int) -> None:
    """Divide the fractions evenly, so that the test depends on no random numbers."""
    backoff = Backoff(base=base, cap=MAX_DURATION)
    least = backoff_wait(backoff, attempt, 0)

    spread = [backoff_wait(backoff, attempt, number / 1000) for number in range(1000)]

    gaps = {later - sooner for sooner, later in pairwise(spread)}
    assert len(set(spread)) == 1000
    assert max(gaps) - min(gaps) <= ROUNDING
    assert max(spread) - least >= (least / 4) * 0.99


@pytest.mark.requirement("S104")
@SHORT
@given(base=waits, factor=factors, cap=waits, attempt=attempts, random_fraction=fractions)
def test_later_attempt_waits_at_least_as_long(
    base: timedelta, factor: float, cap: timedelta, attempt: int, random_fraction: float
) -> None:
    backoff = Backoff(base=base, factor=factor, cap=cap, jitter=Jitter.EQUAL)

    sooner = backoff_wait(backoff, attempt, random_fraction)
    later = backoff_wait(backoff, attempt + 1, random_fraction)

    assert sooner <= later


@pytest.mark.requirement("S106")
@SHORT
@given(
    max_attempts=st.integers(1, 1000),
    attempt=attempts,
    random_fraction=fractions,
    retry_after=st.none() | waits,
    expires=st.none() | st.timedeltas(timedelta(0), timedelta(days=7)),
)
def test_retry_respects_retry_after_max_attempts_and_expiry(
    max_attempts: int,
    attempt: int,
    random_fraction: float,
    retry_after: timedelta | None,
    expires: timedelta | None,
) -> None:
    failure = Failure("http_error", "HTTP 503", retry_after=retry_after)
    expires_at = None if expires is None else NINE + expires

    decided = decide(
        RetryPolicy(max_attempts=max_attempts),
        attempt,
        failure,
        now=NINE,
        random_fraction=random_fraction,
        expires_at=expires_at,
    )

    assert isinstance(decided, Dead) == (attempt >= max_attempts)
    if isinstance(decided, Retry):
        assert decided.at >= NINE + (retry_after or timedelta(0))
        assert expires_at is None or decided.at < expires_at
