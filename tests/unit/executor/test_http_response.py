"""Unit tests of the outcome of an HTTP response."""

from datetime import UTC, datetime, timedelta

import pytest

from harebell.domain.retry import Failure
from harebell.executor.targets.attempt import Success
from harebell.executor.targets.http_response import MAX_RETRY_AFTER, outcome_of, retry_after

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
        ("3601", 3601),
        ("9" * 9, 10**9 - 1),
        ("9" * 60_000, 10**9 - 1),
        ("-1", None),
        ("1.0", 1),
        ("1.", 1),
        ("1.0001", 2),
        (".5", None),
        ("soon", None),
        ("", None),
        ("²", None),
        ("1e3", None),
        (IN_A_MINUTE, 60),
        (DATE, 0),
        ("Fri, 20 Nov 2026 08:59:59 GMT", None),
        ("Sat, 21 Nov 2026 09:00:00 GMT", 24 * 3600),
        ("Fri, 20 Nov 2026 25:00:00 GMT", None),
        ("Fri, 20 Nov 2026 09:00:30 -0000", 30),
        ("Fri Nov 20 09:00:30 2026", 30),  # asctime
        ("Friday, 20-Nov-26 09:00:30 GMT", 30),  # RFC 850
    ],
)
def test_retry_after_reads_seconds_and_dates(value: str, seconds: int | None) -> None:
    wait = retry_after({"Retry-After": value, "Date": DATE})

    assert wait == (None if seconds is None else timedelta(seconds=seconds))


@pytest.mark.parametrize("date", [{}, {"Date": "today"}])
def test_retry_after_counts_from_the_present_when_the_server_sends_no_date(
    date: dict[str, str],
) -> None:
    now = datetime(2026, 11, 20, 8, 59, 30, tzinfo=UTC)

    assert retry_after({"Retry-After": IN_A_MINUTE, **date}, now) == timedelta(seconds=90)
    assert retry_after({"Retry-After": IN_A_MINUTE, **date}) is None


def test_failure_that_asks_for_a_longer_wait_than_a_month_has_no_retry() -> None:
    month = int(MAX_RETRY_AFTER.total_seconds())
    outcomes = [outcome_of(503, {"Retry-After": str(month + more)}, None) for more in (0, 1)]
    waits = [each.retry_after for each in outcomes if isinstance(each, Failure)]

    assert waits == [MAX_RETRY_AFTER, None]
    assert outcomes[1] == Failure(
        "http_503",
        "HTTP 503, with a Retry-After of more than 30 days",
        retryable=False,
        http_status=503,
    )


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_redirect_that_is_not_followed_shows_its_location(status: int) -> None:
    outcome = outcome_of(status, {"Location": "https://b.example/to"}, None)

    assert isinstance(outcome, Failure)
    assert outcome.message == f"HTTP {status} to https://b.example/to"


def test_failure_has_the_wait_of_retry_after() -> None:
    outcome = outcome_of(503, {"Retry-After": "7"}, None)

    assert isinstance(outcome, Failure)
    assert outcome.retry_after == timedelta(seconds=7)
