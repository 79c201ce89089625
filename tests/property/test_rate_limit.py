"""No span holds more starts than its limit allows, however runs come, and each of them starts."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harebell.contract.policy import RateLimit, RateLimitScope
from harebell.domain.rate_limit import RateLimitState, admit, padded_window, reserve, start_slack

NINE = datetime(2026, 11, 20, 9, tzinfo=UTC)
MS = timedelta(milliseconds=1)
PATIENCE = 1_000  # looks

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
def test_no_span_holds_more_starts_than_its_limit(limit: RateLimit, gaps: list[int]) -> None:
    tally, now, started = RateLimitState(), NINE, []
    for gap in gaps:
        now += gap * MS
        tally, told = admit(tally, limit, now)
        started += [told.at] if told.is_allowed else []

    assert most_within(padded_window(limit), started) <= limit.starts


@pytest.mark.requirement("S70")
@given(limits, waits, st.lists(st.integers(0, 5_000), min_size=40, max_size=40))
def test_whoever_comes_when_told_to_or_later_starts(
    limit: RateLimit, gaps: list[int], late: list[int]
) -> None:
    """`late`: how much later than they were told they come, the first time."""
    tally, now = RateLimitState(), NINE
    told: list[tuple[datetime, int]] = []
    for number, gap in enumerate(gaps):
        now += gap * MS
        tally, answer = reserve(tally, limit, now)
        told.append((answer.at + late[number] * MS, number))

    started: list[datetime] = []
    for _ in range(PATIENCE):
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
def test_runs_of_one_instant_go_as_fast_as_their_limit_and_in_the_order_they_were_told(
    limit: RateLimit, runs: int
) -> None:
    tally, told = RateLimitState(), []
    for _ in range(runs):
        tally, answer = reserve(tally, limit, NINE)
        told.append(answer.at)
    refused = 0
    for number, at in enumerate(told):
        late = number * 7 % 90 * MS  # jitter within the slack puts nobody off
        tally, answer = admit(tally, limit, at + late)
        refused += not answer.is_allowed

    assert told == [NINE + number // limit.starts * padded_window(limit) for number in range(runs)]
    assert refused == 0


@pytest.mark.requirement("S70")
@given(limits)
def test_starts_that_are_late_within_the_slack_keep_the_limit(limit: RateLimit) -> None:
    """The worst: the last of a span late, the first of the next as counted."""
    tally, counted = RateLimitState(), []
    now = NINE
    for _ in range(3 * limit.starts):
        tally, told = reserve(tally, limit, now)
        counted.append(now := told.at)
    slack = start_slack(limit)
    late = [at + slack if number % 2 == 0 else at for number, at in enumerate(counted)]

    assert most_within(limit.within, sorted(late)) <= limit.starts
