"""Unit tests of the health of a downstream, which an attempt reports to the breakers."""

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
def test_downstream_is_unhealthy_only_when_its_status_is_retryable(
    status: int, *, healthy: bool
) -> None:
    outcome = outcome_of(status, {}, None)

    assert is_healthy(outcome) is healthy


@pytest.mark.requirement("S113")
def test_downstream_is_unhealthy_when_it_does_not_answer() -> None:
    assert is_healthy(Failure("connect_failed", "The connection failed.")) is False
    assert is_healthy(Failure("timeout", "The attempt did not end within 30 s.")) is False


@pytest.mark.requirement("S113")
def test_health_is_unknown_when_no_request_was_sent() -> None:
    expired = Failure(EXPIRED, "The expiry time of the run has passed.", retryable=False)
    private = Failure("private_address", "The address is private.", retryable=False)

    assert is_healthy(expired) is None
    assert is_healthy(private) is None
    assert is_healthy(Success()) is True
