"""Pure rules for the HTTP request of an attempt and for the request after a redirect."""

from dataclasses import dataclass
from http import HTTPStatus
from ipaddress import IPv4Address
from typing import Final, cast

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
_BODY_HEADERS: Final = {"content-type", "content-encoding", "content-language"}
# The headers of the user that contain no secret. Any other header may, such as X-Api-Key.
_PUBLIC_HEADERS: Final = {"accept", "accept-encoding", "accept-language", "user-agent"}


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
    headers.setdefault("User-Agent", USER_AGENT)
    headers.setdefault("Accept-Encoding", "identity")  # the excerpt is never decompressed
    if (content_type := call.content_type()) is not None:
        headers.setdefault("Content-Type", content_type)
    return HttpRequest(
        method=call.method,
        url=_parse_url(call.url),
        headers=headers,
        attempt_headers=attempt.headers(),
        body=call.body(),
        signer=attempt.signer,
    )


def redirect_of(request: HttpRequest, status: int, location: str | None) -> HttpRequest | None:
    """Return the next request, or None if the response is no redirect.

    As in browsers, the next request is a GET after 303, and after a POST with 301 or 302. Statuses
    307 and 308 keep method and body. Another origin receives no header that may contain a secret
    and no body, because the first origin could send the data to any host. It also receives no
    signature, with which it could send a body to any receiver of the tenant.

    Raise `InvalidInput` for an invalid location.
    """
    if status not in _REDIRECTS or location is None:
        return None
    url = _parse_url(str(location), request.url)
    headers, method, body = request.headers, request.method, request.body
    signer = request.signer
    if _origin(url) != _origin(request.url):
        url = url.with_user(None)
        signer = None
        headers = _without(headers, set(map(str.lower, headers)) - _PUBLIC_HEADERS)
        body = None
    if _becomes_get(request.method, status):
        headers, method, body = _without(headers, _BODY_HEADERS), "GET", None
    return HttpRequest(
        method=method,
        url=url,
        headers=headers,
        attempt_headers=request.attempt_headers,
        body=body,
        signer=signer,
    )


def _origin(url: URL) -> tuple[str, str | None, int | None]:
    """Return scheme, host and port. `URL.origin` distinguishes a default port from no port."""
    return url.scheme, url.host, url.port


def _becomes_get(method: str, status: int) -> bool:
    if status == HTTPStatus.SEE_OTHER:
        return method != "HEAD"
    return method == "POST" and status in {HTTPStatus.MOVED_PERMANENTLY, HTTPStatus.FOUND}


def _without(headers: CIMultiDict[str], names: set[str]) -> CIMultiDict[str]:
    return CIMultiDict(
        (name, value) for name, value in headers.items() if name.lower() not in names
    )


def _parse_url(text: str, base: URL | None = None) -> URL:
    """Return the URL with a literal IPv4 address in its usual form.

    The socket then connects to the address that the URL policy has checked, also for `0x7f.1`.
    """
    try:
        url = URL(text) if base is None else base.join(URL(text))
        if url.scheme not in {"http", "https"}:
            reason = f"The scheme of the URL must be http or https, not {url.scheme!r}."
            raise InvalidInput(reason, field="url", code="invalid_url")
        address = literal_address(url)
        return url.with_host(str(address)) if isinstance(address, IPv4Address) else url
    except ValueError as error:
        reason = f"The URL must be valid: {error}."
        raise InvalidInput(reason, field="url", code="invalid_url") from None
