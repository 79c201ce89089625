"""Pure rules for the outcome of an HTTP response and of a failed HTTP request."""

import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import Final

from aiohttp import (
    ClientConnectorDNSError,
    ClientConnectorError,
    ClientError,
    ClientResponseError,
    ClientSSLError,
    InvalidURL,
)

from harebell.domain.retry import Failure
from harebell.executor.targets.attempt import Success, TargetOutcome, error_text, excerpt

MAX_RETRY_AFTER: Final = timedelta(days=30)  # a target that asks for more gets no retry
MAX_DIGITS: Final = 9  # of the seconds; more are cut, which is still far above MAX_RETRY_AFTER
_RETRYABLE: Final = {
    HTTPStatus.REQUEST_TIMEOUT,
    HTTPStatus.TOO_EARLY,
    HTTPStatus.TOO_MANY_REQUESTS,
}
_SECONDS: Final = re.compile(r"(?P<whole>[0-9]+)(\.(?P<part>[0-9]*))?", re.ASCII)


def outcome_of(
    status: int, headers: Mapping[str, str], body: str | None, *, now: datetime | None = None
) -> TargetOutcome:
    """Return the outcome of a response with the excerpt `body`.

    Any 2xx is a success. Statuses 408, 425, 429 and 5xx are retryable failures, unless they ask for
    a longer wait than MAX_RETRY_AFTER. If a redirect is not followed, the outcome has its location.
    """
    if HTTPStatus.OK <= status < HTTPStatus.MULTIPLE_CHOICES:
        return Success(status, body)
    retryable = status in _RETRYABLE or status >= HTTPStatus.INTERNAL_SERVER_ERROR
    wait = retry_after(headers, now) if retryable else None
    text = own = f"HTTP {status}"
    if status < HTTPStatus.BAD_REQUEST and "Location" in headers:
        text += f" to {headers['Location']}"
    if wait is not None and wait > MAX_RETRY_AFTER:
        text += f", with a Retry-After of more than {MAX_RETRY_AFTER.days} days"
        retryable, wait = False, None
    return Failure(
        f"http_{status}",
        excerpt(f"{text}: {body}" if body else text),
        retryable=retryable,
        retry_after=wait,
        http_status=status,
        own=len(own),
    )


def retry_after(headers: Mapping[str, str], now: datetime | None = None) -> timedelta | None:
    """Return the wait of the header `Retry-After`, which contains seconds or a date.

    Fractions of a second are rounded up. Dates in one of the three forms of RFC 9110 count from the
    header `Date`, so the clock of the server does not matter, or else from `now`.
    Return None for an invalid value or a past date.
    """
    value = headers.get("Retry-After", "").strip()
    if (seconds := _SECONDS.fullmatch(value)) is not None:
        whole = int(seconds["whole"].lstrip("0")[:MAX_DIGITS] or 0)
        return timedelta(seconds=whole + bool((seconds["part"] or "").strip("0")))
    until, at = _http_date(value), _http_date(headers.get("Date", "")) or now
    if until is None or at is None:
        return None
    return until - at if until >= at else None


def _http_date(text: str) -> datetime | None:
    """Return the time of an HTTP date, which is in UTC even if it does not say so."""
    try:
        time = parsedate_to_datetime(text)
    except (ValueError, TypeError, OverflowError):
        return None
    return time if time.tzinfo is not None else time.replace(tzinfo=UTC)


def failure_of(error: ClientError) -> Failure:
    """Return the failure of a request without a response, retryable unless the URL is invalid."""
    text = error_text(error)
    return Failure(
        _code_of(error),
        text,
        retryable=not isinstance(error, InvalidURL),
        own=len(text) if isinstance(error, ClientConnectorError) else 0,
    )


def _code_of(error: ClientError) -> str:
    match error:
        case InvalidURL():
            return "invalid_url"
        case ClientConnectorDNSError():
            return "dns_failed"
        case ClientSSLError():
            return "tls_failed"
        case ClientConnectorError():
            return "connect_failed"
        case ClientResponseError():
            return "bad_response"
        case _:
            return "connection_lost"
