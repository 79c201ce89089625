"""Pure rules for the HTTP request of an attempt and for the request after a redirect."""

import base64
from dataclasses import dataclass
from http import HTTPStatus
from ipaddress import IPv4Address
from typing import Final, cast
from urllib.parse import quote, urljoin, urlsplit

from multidict import CIMultiDict
from yarl import URL

from harebell.contract import __version__
from harebell.contract.errors import InvalidInput
from harebell.contract.target import HttpCall
from harebell.domain.url_policy import literal_address
from harebell.domain.webhook_signature import MessageSigner
from harebell.executor.targets.attempt import AttemptContext

USER_AGENT: Final = f"harebell/{__version__}"

_REDIRECTS: Final = {
    HTTPStatus.MOVED_PERMANENTLY,
    HTTPStatus.FOUND,
    HTTPStatus.SEE_OTHER,
    HTTPStatus.TEMPORARY_REDIRECT,
    HTTPStatus.PERMANENT_REDIRECT,
}
_MOVED: Final = {HTTPStatus.MOVED_PERMANENTLY, HTTPStatus.FOUND}
_PRINTABLE: Final = "".join(map(chr, range(0x21, 0x7F)))
_BODY_HEADERS: Final = {"content-type", "content-encoding", "content-language"}
# The headers of the user that contain no secret. Any other header may, such as X-Api-Key.
_PUBLIC_HEADERS: Final = {"accept", "accept-encoding", "accept-language", "user-agent"}


class RedirectLosesBody(Exception):
    """A redirect after which the body of the request would not arrive."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpRequest:
    """One HTTP request. The Harebell headers of the attempt override the headers of the user.

    The signature belongs to the body of this request, which a redirect may remove.
    """

    method: str
    url: URL
    headers: CIMultiDict[str]
    attempt_headers: dict[str, str]
    body: bytes | None
    signer: MessageSigner | None

    def all_headers(self) -> CIMultiDict[str]:
        merged = self.headers.copy()
        merged.update(self.attempt_headers)
        if self.signer is not None:
            merged.update(self.signer.headers(self.body or b""))
        return merged


def request_of(call: HttpCall, attempt: AttemptContext) -> HttpRequest:
    """Return the request of an attempt. Raise `InvalidInput` for an invalid URL."""
    headers = CIMultiDict(cast("dict[str, str]", call.headers))  # the secrets are resolved
    url = _parse_url(call.url)
    if url.user is not None or url.password is not None:
        headers.setdefault("Authorization", basic(url.user or "", url.password or ""))
        url = url.with_user(None)
    headers.setdefault("User-Agent", USER_AGENT)
    headers.setdefault("Accept-Encoding", "identity")  # the excerpt is never decompressed
    if (content_type := call.content_type()) is not None:
        headers.setdefault("Content-Type", content_type)
    return HttpRequest(
        method=call.method,
        url=url,
        headers=headers,
        attempt_headers=attempt.headers(),
        body=call.body(),
        signer=attempt.signer,
    )


def redirect_of(request: HttpRequest, status: int, location: str | None) -> HttpRequest | None:
    """Return the next request, or None if the response is no redirect.

    The next request is a GET after 303, because the target has taken the body. The other statuses
    keep method and body, except that a POST without a body becomes a GET after 301 and 302, as in
    browsers. They reach the same host only, and 301 and 302 only the same path with https, because
    another host could be anyone's, and because a browser would send a GET.

    Another origin receives no header that may contain a secret and no signature, with which it
    could send a body to any receiver of the tenant. The same host with https instead of http, on
    the default ports, counts as the same origin.

    Raise `InvalidInput` for an invalid location, and `RedirectLosesBody`.
    """
    if status not in _REDIRECTS or location is None:
        return None
    url = _parse_url(location, request.url).with_user(None)
    headers, method, body = request.headers, request.method, request.body
    signer = request.signer
    is_upgrade = _is_upgrade(request.url, url)
    if _origin(url) != _origin(request.url) and not is_upgrade:
        signer = None
        kept = _PUBLIC_HEADERS | _BODY_HEADERS
        headers = _without(headers, set(map(str.lower, headers)) - kept)
    if status == HTTPStatus.SEE_OTHER:
        method, body = ("HEAD" if method == "HEAD" else "GET"), None
    elif body is not None:
        _check_body_arrives(request, status, url)
    elif method == "POST" and status in _MOVED:
        method = "GET"
    if body is None:
        headers = _without(headers, _BODY_HEADERS)
    return HttpRequest(
        method=method,
        url=url,
        headers=headers,
        attempt_headers=request.attempt_headers,
        body=body,
        signer=signer,
    )


def _check_body_arrives(request: HttpRequest, status: int, url: URL) -> None:
    """Raise `RedirectLosesBody` unless the body may be sent to the new URL."""
    if request.method == "POST" and status in _MOVED:
        may = _is_upgrade(request.url, url) and url.raw_path_qs == request.url.raw_path_qs
    else:
        may = url.host == request.url.host and not (
            request.url.scheme == "https" and url.scheme == "http"
        )
    if not may:
        raise RedirectLosesBody(
            f"HTTP {status} to {url}: the redirect would lose the body of the request, so the "
            "target must have the URL of the redirect."
        )


def _is_upgrade(url: URL, redirected: URL) -> bool:
    """Return whether the redirect leads to the same host with https, on the default ports."""
    is_same_host = redirected.host == url.host
    ports = (url.port, redirected.port)
    schemes = (url.scheme, redirected.scheme)
    return is_same_host and schemes == ("http", "https") and ports == (80, 443)


def _origin(url: URL) -> tuple[str, str | None, int | None]:
    """Return scheme, host and port. `URL.origin` distinguishes a default port from no port."""
    return url.scheme, url.host, url.port


def _without(headers: CIMultiDict[str], names: set[str]) -> CIMultiDict[str]:
    return CIMultiDict(
        (name, value) for name, value in headers.items() if name.lower() not in names
    )


def _parse_url(text: str, base: URL | None = None) -> URL:
    """Return the URL with its path and query as they are written, and without a fragment.

    A literal IPv4 address gets its usual form. The socket then connects to the address that the
    URL policy has checked, also for `0x7f.1`.
    """
    try:
        full = text if base is None else urljoin(str(base), text)
        url = URL(full)
        if url.scheme not in {"http", "https"}:
            reason = f"The scheme of the URL must be http or https, not {url.scheme!r}."
            raise InvalidInput(reason, field="url", code="invalid_url")
        address = literal_address(url)
        if isinstance(address, IPv4Address):
            url = url.with_host(str(address))
        return _as_written(url, full)
    except ValueError as error:
        reason = f"The URL must be valid: {error}."
        raise InvalidInput(reason, field="url", code="invalid_url") from None


def _as_written(url: URL, text: str) -> URL:
    """Return the URL with the path and the query of the text, byte for byte.

    A signed URL is invalid after a change of its escapes. Bytes that no URL may contain are
    escaped.
    """
    parts = urlsplit(text)
    return URL.build(
        scheme=url.scheme,
        authority=url.raw_authority,
        path=_escaped(parts.path) or "/",
        query_string=_escaped(parts.query),
        encoded=True,
    )


def _escaped(text: str) -> str:
    return quote(text, safe=_PRINTABLE, errors="surrogateescape")


def basic(user: str, password: str) -> str:
    """Return the value of the header `Authorization`, in UTF-8."""
    return f"Basic {base64.b64encode(f'{user}:{password}'.encode()).decode()}"
