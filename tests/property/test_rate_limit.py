"""The rate limit under any arrivals: no window has too many starts, and each run starts."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harebell.contract.policy import RateLimit, RateLimitScope
from harebell.domain.rate_limit import RateLimitState, admit, padded_window, reserve, start_slack

NINE = datetime(2026, 11, 20, 9, tzinfo=UTC)
MS = timedelta(milliseconds=1)
MAX_TRIES = 1_000

limits = st.builds(
    lambda starts, ms: RateLimit(per=RateLimitScope.TARGET, starts=starts, within=ms * MS),
    st.integers(1, 5),
    st.integers(1_000, 20_000),
)
waits = st.lists(st.integers(0, 3_000), min_size=1, max_size=40)


def most_within(span: timedelta, moments: Sequence[datetime]) -> int:
    return max(sum(first <= each < first + span for each in moments) for first in moments)


@pytest.mark.requirement("S70")
@given(limits, waits)
def test_no_window_contains_more_starts_than_its_limit(limit: RateLimit, gaps: list[int]) -> None:
    tally, now, started = RateLimitState(), NINE, []
    for gap in gaps:
        now += gap * MS
        tally, told = admit(tally, limit, now)
        started += [told.at] if told.is_allowed else []

    assert most_within(padded_window(limit), started) <= limit.starts


@pytest.mark.requirement("S70")
@given(limits, waits, st.lists(st.integers(0, 5_000), min_size=40, max_size=40))
def test_run_starts_at_its_reservation_or_later(
    limit: RateLimit, gaps: list[int], late: list[int]
) -> None:
    """`late` is the delay of each run after its first reservation."""
    tally, now = RateLimitState(), NINE
    told: list[tuple[datetime, int]] = []
    for number, gap in enumerate(gaps):
        now += gap * MS
        tally, answer = reserve(tally, limit, now)
        told.append((answer.at + late[number] * MS, number))

    started: list[datetime] = []
    for _ in range(MAX_TRIES):
        if not told:
            break
        now, number = told.pop(told.index(min(told)))
        tally, answer = admit(tally, limit, now)
        if answer.is_allowed:
            started.append(answer.at)
        else:
            told.append((answer.at, number))

    assert told == []
    assert most_within(padded_window(limit), started) <= limit.starts


@pytest.mark.requirement("S70")
@given(limits, st.integers(1, 40))
def test_simultaneous_runs_start_at_the_limit_in_order(limit: RateLimit, runs: int) -> None:
    tally, told = RateLimitState(), []
    for _ in range(runs):
        tally, answer = reserve(tally, limit, NINE)
        told.append(answer.at)
    refused = 0
    for number, at in enumerate(told):
        late = number * 7 % 90 * MS  # a delay within the slack moves no run
        tally, answer = admit(tally, limit, at + late)
        refused += not answer.is_allowed

    assert told == [NINE + number // limit.starts * padded_window(limit) for number in range(runs)]
    assert refused == 0


@pytest.mark.requirement("S70")
@given(limits)
def test_late_starts_within_the_slack_keep_the_limit(limit: RateLimit) -> None:
    """Delay the last start of a window and start the first of the next one in time."""
    tally, counted = RateLimitState(), []
    now = NINE
    for _ in range(3 * limit.starts):
        tally, told = reserve(tally, limit, now)
        counted.append(now := told.at)
    slack = start_slack(limit)
    late = [at + slack if number % 2 == 0 else at for number, at in enumerate(counted)]

    assert most_within(limit.within, sorted(late)) <= limit.starts
