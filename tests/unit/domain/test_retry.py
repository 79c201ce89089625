"""The retry rule: backoff, jitter and the end of retries."""

import random
from collections import Counter
from datetime import timedelta

import pytest
from tests.fakes.schedules import seconds
from tests.fakes.tickets import NINE, after

from harebell.contract.policy import Backoff, Jitter, RetryPolicy
from harebell.contract.types import instant_text, parse_instant
from harebell.domain.retry import (
    ATTEMPTS_EXHAUSTED,
    EXPIRED,
    Dead,
    Decision,
    Expired,
    Failure,
    Retry,
    backoff_wait,
    decide,
)
from harebell.domain.run_states import Reason, RunState, state_after

STEADY = Backoff(jitter=Jitter.NONE)
POLICY = RetryPolicy(max_attempts=6, backoff=STEADY)
FAILED = Failure("http_error", "HTTP 500")


@pytest.mark.requirement("S104")
@pytest.mark.parametrize(("attempt", "wait"), [(1, 1), (2, 2), (3, 4), (4, 8), (5, 16)])
def test_default_backoff_doubles_from_one_second(attempt: int, wait: int) -> None:
    assert decide(POLICY, attempt, FAILED, now=NINE, random_fraction=0.5) == Retry(after(wait))


@pytest.mark.requirement("S104")
@pytest.mark.parametrize(
    ("base", "factor", "attempt", "wait"),
    [("10s", 1, 50, 10), ("2s", 3, 3, 18), ("500ms", 2, 1, 0.5), ("0s", 2, 9, 0)],
)
def test_backoff_uses_base_and_factor(base: str, factor: float, attempt: int, wait: float) -> None:
    backoff = Backoff.model_validate({"base": base, "factor": factor, "jitter": "none"})

    assert backoff_wait(backoff, attempt, 0.9) == seconds(wait)


@pytest.mark.requirement("S104")
@pytest.mark.parametrize("attempt", [10, 47, 1000, 10**9])
@pytest.mark.parametrize("factor", [2, 100])
def test_backoff_is_at_most_the_cap(attempt: int, factor: int) -> None:
    backoff = Backoff(base=timedelta(days=3660), factor=factor, cap=seconds(7), jitter=Jitter.NONE)

    assert backoff_wait(backoff, attempt, 0) == seconds(7)


@pytest.mark.requirement("S105")
@pytest.mark.parametrize(
    ("jitter", "dice", "wait"),
    [
        (Jitter.NONE, 0.0, 8),
        (Jitter.NONE, 0.999, 8),
        (Jitter.EQUAL, 0.0, 4),
        (Jitter.EQUAL, 0.5, 6),
        (Jitter.FULL, 0.0, 0),
        (Jitter.FULL, 0.5, 4),
        (Jitter.ADDITIVE, 0.0, 8),
        (Jitter.ADDITIVE, 0.5, 9),
    ],
)
def test_jitter_changes_a_wait(jitter: Jitter, dice: float, wait: float) -> None:
    assert backoff_wait(Backoff(jitter=jitter), 4, dice) == seconds(wait)


@pytest.mark.requirement("S105")
@pytest.mark.parametrize(
    ("jitter", "least", "most"),
    [(Jitter.EQUAL, 4.0, 8.0), (Jitter.FULL, 0.0, 8.0), (Jitter.ADDITIVE, 8.0, 10.0)],
)
def test_jitter_spreads_a_thousand_retries_over_its_whole_range(
    jitter: Jitter, least: float, most: float
) -> None:
    dice = random.Random(7)  # noqa: S311  # spread, not secrecy
    policy = RetryPolicy(max_attempts=6, backoff=Backoff(jitter=jitter))

    decided = [
        decide(policy, 4, FAILED, now=NINE, random_fraction=dice.random()) for _ in range(1_000)
    ]

    waits = [(each.at - NINE).total_seconds() for each in decided if isinstance(each, Retry)]
    tenths = Counter(min(9, int((wait - least) / (most - least) * 10)) for wait in waits)
    assert (len(waits), len(tenths)) == (1_000, 10)
    assert min(waits) >= least
    assert max(waits) <= most
    assert max(tenths.values()) < 150


@pytest.mark.requirement("S104", "S105")
@pytest.mark.parametrize("random_fraction", [0.0, 0.999])
def test_default_attempts_take_at_least_the_sum_of_the_backoff(random_fraction: float) -> None:
    waits = [backoff_wait(Backoff(), attempt, random_fraction) for attempt in range(1, 5)]

    assert all(wait >= seconds(least) for wait, least in zip(waits, (1, 2, 4, 8), strict=True))
    assert seconds(15) <= sum(waits, seconds(0)) < seconds(15 * 1.25)


@pytest.mark.requirement("S104", "S105")
@pytest.mark.parametrize(("attempt", "least", "most"), [(3, 4, 5), (4, 6, 6), (30, 6, 6)])
def test_additive_jitter_never_exceeds_the_cap(attempt: int, least: float, most: float) -> None:
    backoff = Backoff(cap=seconds(6))

    waits = [backoff_wait(backoff, attempt, fraction) for fraction in (0.0, 1.0)]

    assert waits == [seconds(least), seconds(most)]


@pytest.mark.requirement("S104", "S105")
@pytest.mark.parametrize(("jitter", "wait"), [(Jitter.EQUAL, 3), (Jitter.FULL, 0)])
def test_jitter_is_a_share_of_the_capped_wait(jitter: Jitter, wait: float) -> None:
    assert backoff_wait(Backoff(cap=seconds(6), jitter=jitter), 30, 0.0) == seconds(wait)


@pytest.mark.parametrize(
    ("retry_after", "wait"),
    [(None, 4), (seconds(1), 4), (seconds(60), 60), (timedelta(hours=3), 3)],
)
def test_retry_after_applies_when_it_is_longer_than_the_backoff(
    retry_after: timedelta | None, wait: int
) -> None:
    failure = Failure("http_error", "HTTP 503", retry_after=retry_after)
    expected = timedelta(hours=wait) if retry_after == timedelta(hours=3) else seconds(wait)

    assert decide(POLICY, 3, failure, now=NINE, random_fraction=0) == Retry(NINE + expected)


def test_retry_after_of_the_target_gets_no_jitter() -> None:
    failure = Failure("http_error", "HTTP 503", retry_after=seconds(60))
    policy = RetryPolicy(max_attempts=6)

    assert decide(policy, 3, failure, now=NINE, random_fraction=0.9) == Retry(after(60))


@pytest.mark.requirement("S106")
@pytest.mark.parametrize(("attempt", "expected"), [(5, Retry), (6, Dead), (7, Dead)])
def test_decide_returns_dead_after_the_last_attempt(attempt: int, expected: type[Decision]) -> None:
    decided = decide(POLICY, attempt, FAILED, now=NINE, random_fraction=0)

    assert type(decided) is expected
    assert decided == Dead(ATTEMPTS_EXHAUSTED) or isinstance(decided, Retry)


@pytest.mark.requirement("S106")
def test_decide_returns_dead_when_one_attempt_is_allowed() -> None:
    assert decide(RetryPolicy(max_attempts=1), 1, FAILED, now=NINE, random_fraction=0) == Dead(
        ATTEMPTS_EXHAUSTED
    )


def test_decide_returns_dead_with_the_code_of_a_failure_that_is_not_retryable() -> None:
    failure = Failure("http_status", "HTTP 404", retryable=False)

    assert decide(POLICY, 1, failure, now=NINE, random_fraction=0) == Dead("http_status")


def test_decide_retries_an_immediate_failure_without_backoff() -> None:
    failure = Failure("lease_expired", "gone", immediate=True, retry_after=seconds(60))

    assert decide(POLICY, 1, failure, now=NINE, random_fraction=0.9) == Retry(NINE)


@pytest.mark.parametrize(
    ("expires", "expected"), [(3.999, Expired()), (4, Expired()), (4.001, Retry(after(4)))]
)
def test_decide_returns_expired_when_the_retry_is_after_expiry(
    expires: float, expected: Decision
) -> None:
    assert (
        decide(POLICY, 3, FAILED, now=NINE, random_fraction=0, expires_at=after(expires))
        == expected
    )


@pytest.mark.requirement("ASK-1")
@pytest.mark.parametrize("attempt", [1, POLICY.max_attempts])
def test_decide_returns_expired_for_a_start_after_expiry(
    attempt: int,
) -> None:
    failure = Failure(EXPIRED, "its time has passed", retryable=False)

    assert (
        decide(POLICY, attempt, failure, now=NINE, random_fraction=0, expires_at=NINE) == Expired()
    )


@pytest.mark.requirement("S106")
def test_decide_prefers_dead_to_expired_after_the_last_attempt() -> None:
    decided = decide(POLICY, 6, FAILED, now=NINE, random_fraction=0, expires_at=after(-60))

    assert decided == Dead(ATTEMPTS_EXHAUSTED)


@pytest.mark.parametrize(
    ("decided", "expected"),
    [
        (Retry(after(4)), (RunState.RETRYING, None, after(4))),
        (Dead("unknown_task"), (RunState.DEAD, "unknown_task", None)),
        (Expired(), (RunState.EXPIRED, Reason.EXPIRED, None)),
    ],
)
def test_state_after_returns_a_state_for_each_decision(decided: Decision, expected: object) -> None:
    assert state_after(decided) == expected


@pytest.mark.requirement("S105")
def test_retry_time_keeps_its_precision_in_a_ticket() -> None:
    """Tickets say milliseconds."""
    now = NINE.replace(microsecond=123_456)

    decided = decide(POLICY, 1, FAILED, now=now, random_fraction=0.5)

    assert isinstance(decided, Retry)
    assert parse_instant(instant_text(decided.at)) - now >= timedelta(seconds=1)


@pytest.mark.requirement("P6")
def test_no_wait_is_shorter_than_the_minimum_of_the_tenant() -> None:
    no_backoff = RetryPolicy(
        max_attempts=1_000,
        backoff=Backoff.model_validate({"base": "0s", "cap": "0s", "jitter": "none"}),
    )
    lost = Failure("lease_expired", "The lease expired.", immediate=True)
    floor = timedelta(milliseconds=100)

    def retry(policy: RetryPolicy, failure: Failure) -> Decision:
        return decide(policy, 1, failure, now=NINE, random_fraction=0.5, min_wait=floor)

    assert retry(no_backoff, FAILED) == Retry(after(0.1))
    assert retry(no_backoff, lost) == Retry(after(0.1))
    assert retry(POLICY, FAILED) == Retry(after(1))
    assert decide(no_backoff, 1, FAILED, now=NINE, random_fraction=0.5) == Retry(NINE)
