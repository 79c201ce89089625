"""Pure rules for the outcome of an HTTP response and of a failed HTTP request."""

import re
from collections.abc import Mapping
from datetime import timedelta
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

MAX_RETRY_AFTER: Final = timedelta(hours=1)
_RETRYABLE: Final = {
    HTTPStatus.REQUEST_TIMEOUT,
    HTTPStatus.TOO_EARLY,
    HTTPStatus.TOO_MANY_REQUESTS,
}
_SECONDS: Final = re.compile(r"[0-9]{1,9}")
_TOO_MANY_SECONDS: Final = re.compile(r"[0-9]{10,}")  # timedelta would overflow


def outcome_of(status: int, headers: Mapping[str, str], body: str | None) -> TargetOutcome:
    """Return the outcome of a response with the excerpt `body`.

    A status of 2xx is a success. Statuses 408, 425, 429 and 5xx are retryable failures.
    """
    if HTTPStatus.OK <= status < HTTPStatus.MULTIPLE_CHOICES:
        return Success(status, body)
    retryable = status in _RETRYABLE or status >= HTTPStatus.INTERNAL_SERVER_ERROR
    return Failure(
        f"http_{status}",
        excerpt(f"HTTP {status}: {body}" if body else f"HTTP {status}"),
        retryable=retryable,
        retry_after=retry_after(headers) if retryable else None,
        http_status=status,
    )


def retry_after(headers: Mapping[str, str]) -> timedelta | None:
    """Return the wait of the header `Retry-After`, which contains seconds or a date.

    The wait is at most MAX_RETRY_AFTER. A date counts from the header `Date`, so the clock of the
    server does not matter. Return None for an invalid value, a past date or a missing `Date`.
    """
    value = headers.get("Retry-After", "").strip()
    if _SECONDS.fullmatch(value):
        return min(timedelta(seconds=int(value)), MAX_RETRY_AFTER)
    if _TOO_MANY_SECONDS.fullmatch(value):
        return MAX_RETRY_AFTER
    try:
        wait = parsedate_to_datetime(value) - parsedate_to_datetime(headers.get("Date", ""))
    except (ValueError, TypeError, OverflowError):
        return None
    return min(wait, MAX_RETRY_AFTER) if wait >= timedelta(0) else None


def failure_of(error: ClientError) -> Failure:
    """Return the failure of a request without a response, retryable unless the URL is invalid."""
    return Failure(_code_of(error), error_text(error), retryable=not isinstance(error, InvalidURL))


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
