"""Unit tests of the outcome of an HTTP response."""

from datetime import timedelta

import pytest

from harebell.domain.retry import Failure
from harebell.executor.targets.attempt import Success
from harebell.executor.targets.http_response import outcome_of, retry_after

DATE = "Fri, 20 Nov 2026 09:00:00 GMT"
IN_A_MINUTE = "Fri, 20 Nov 2026 09:01:00 GMT"


@pytest.mark.parametrize("status", [200, 201, 202, 204, 206, 299])
def test_outcome_is_a_success_when_the_status_is_2xx(status: int) -> None:
    assert outcome_of(status, {}, "done") == Success(status, "done")


@pytest.mark.parametrize("status", [408, 425, 429, 500, 501, 502, 503, 504, 507, 599])
def test_outcome_is_retryable_when_the_status_may_be_temporary(status: int) -> None:
    expected = Failure(f"http_{status}", f"HTTP {status}", http_status=status)

    assert outcome_of(status, {}, None) == expected


@pytest.mark.parametrize("status", [101, 300, 301, 302, 304, 308, 400, 401, 403, 404, 410, 422])
def test_outcome_is_not_retryable_for_other_statuses(status: int) -> None:
    outcome = outcome_of(status, {"Retry-After": "1"}, "no")

    reason = f"HTTP {status}: no"
    assert outcome == Failure(f"http_{status}", reason, retryable=False, http_status=status)


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("0", 0),
        ("2", 2),
        (" 120 ", 120),
        ("0003", 3),
        ("3600", 3600),
        ("3601", 3600),
        ("9" * 9, 3600),
        ("9" * 4000, 3600),
        ("-1", None),
        ("1.5", None),
        ("soon", None),
        ("", None),
        ("²", None),
        ("1e3", None),
        (IN_A_MINUTE, 60),
        (DATE, 0),
        ("Fri, 20 Nov 2026 08:59:59 GMT", None),
        ("Sat, 21 Nov 2026 09:00:00 GMT", 3600),
        ("Fri, 20 Nov 2026 25:00:00 GMT", None),
        ("Fri, 20 Nov 2026 09:00:30 -0000", None),
    ],
)
def test_retry_after_reads_seconds_and_dates_up_to_one_hour(
    value: str, seconds: int | None
) -> None:
    wait = retry_after({"Retry-After": value, "Date": DATE})

    assert wait == (None if seconds is None else timedelta(seconds=seconds))


def test_retry_after_ignores_a_date_when_the_server_sends_no_date() -> None:
    assert retry_after({"Retry-After": IN_A_MINUTE}) is None
    assert retry_after({"Retry-After": IN_A_MINUTE, "Date": "today"}) is None


def test_failure_has_the_wait_of_retry_after() -> None:
    outcome = outcome_of(503, {"Retry-After": "7"}, None)

    assert isinstance(outcome, Failure)
    assert outcome.retry_after == timedelta(seconds=7)
