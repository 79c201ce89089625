"""What an attempt says of whom it called: breakers go by it."""

import pytest

from harebell.domain.retry import EXPIRED, Failure
from harebell.executor.model.completion import is_healthy
from harebell.executor.targets.attempt import Success
from harebell.executor.targets.http_response import outcome_of


@pytest.mark.requirement("S113")
@pytest.mark.parametrize(
    ("status", "healthy"),
    [
        *((status, True) for status in (200, 204, 301, 400, 401, 404, 422)),
        *((status, False) for status in (408, 425, 429, 500, 502, 503)),
    ],
)
def test_who_refuses_what_was_asked_is_well_and_who_asks_to_come_again_is_not(
    status: int, *, healthy: bool
) -> None:
    outcome = outcome_of(status, {}, None)

    assert is_healthy(outcome) is healthy


@pytest.mark.requirement("S113")
def test_who_cannot_be_reached_or_does_not_answer_is_not_well() -> None:
    assert is_healthy(Failure("connect_failed", "refused")) is False
    assert is_healthy(Failure("timeout", "not finished within 30 s")) is False


@pytest.mark.requirement("S113")
def test_what_was_never_sent_says_nothing_of_anybody() -> None:
    assert is_healthy(Failure(EXPIRED, "its time has passed", retryable=False)) is None
    assert is_healthy(Failure("forbidden_address", "is private", retryable=False)) is None
    assert is_healthy(Success()) is True
