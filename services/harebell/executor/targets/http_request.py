"""The HTTP request of an attempt, and the one that a redirect makes of it. Pure rules."""

from dataclasses import dataclass
from http import HTTPStatus
from ipaddress import IPv4Address
from typing import Final

from multidict import CIMultiDict
from yarl import URL

from harebell.contract import __version__
from harebell.contract.errors import InvalidInput
from harebell.contract.target import HttpCall
from harebell.domain.url_policy import literal_address
from harebell.executor.targets.attempt import AttemptContext

USER_AGENT: Final = f"harebell/{__version__}"

_REDIRECTS: Final = {
    HTTPStatus.MOVED_PERMANENTLY,
    HTTPStatus.FOUND,
    HTTPStatus.SEE_OTHER,
    HTTPStatus.TEMPORARY_REDIRECT,
    HTTPStatus.PERMANENT_REDIRECT,
}
_OF_THE_BODY: Final = {"content-type", "content-encoding", "content-language"}
# Of the user's headers, those that hold no secret. An unknown one may: X-Api-Key, X-Token, ...
_FOR_ANYONE: Final = {"accept", "accept-encoding", "accept-language", "user-agent"} | _OF_THE_BODY


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """`own` are Harebell's headers: they go to every hop, and win over the user's."""

    method: str
    url: URL
    headers: CIMultiDict[str]
    own: dict[str, str]
    body: bytes | None

    def all_headers(self) -> CIMultiDict[str]:
        merged = self.headers.copy()
        merged.update(self.own)
        return merged


def request_of(call: HttpCall, attempt: AttemptContext) -> HttpRequest:
    """Raises `Malformed` when the URL cannot be read."""
    headers = CIMultiDict(call.headers)
    headers.setdefault("User-Agent", USER_AGENT)
    headers.setdefault("Accept-Encoding", "identity")  # an excerpt is read, never unpacked
    if (content_type := call.content_type()) is not None:
        headers.setdefault("Content-Type", content_type)
    return HttpRequest(call.method, _url(call.url), headers, attempt.headers(), call.body())


def redirected(request: HttpRequest, status: int, location: str | None) -> HttpRequest | None:
    """The next request, or None where the answer is no redirect. Raises `Malformed`.

    As browsers do: 303 is fetched with GET, as is a POST after 301 or 302; 307 and 308 keep all.
    """
    if status not in _REDIRECTS or location is None:
        return None
    url = _url(str(location), request.url)
    headers = request.headers
    if _origin(url) != _origin(request.url):
        url = url.with_user(None)
        headers = _without(headers, set(map(str.lower, headers)) - _FOR_ANYONE)
    if not _becomes_get(request.method, status):
        return HttpRequest(request.method, url, headers, request.own, request.body)
    return HttpRequest("GET", url, _without(headers, _OF_THE_BODY), request.own, None)


def _origin(url: URL) -> tuple[str, str | None, int | None]:
    return url.scheme, url.host, url.port  # `URL.origin` tells :443 from none


def _becomes_get(method: str, status: int) -> bool:
    if status == HTTPStatus.SEE_OTHER:
        return method != "HEAD"
    return method == "POST" and status in {HTTPStatus.MOVED_PERMANENTLY, HTTPStatus.FOUND}


def _without(headers: CIMultiDict[str], names: set[str]) -> CIMultiDict[str]:
    return CIMultiDict(
        (name, value) for name, value in headers.items() if name.lower() not in names
    )


def _url(text: str, base: URL | None = None) -> URL:
    """An address is written as it was judged: what `0x7f.1` means is not left to the socket."""
    try:
        url = URL(text) if base is None else base.join(URL(text))
        if url.scheme not in {"http", "https"}:
            raise InvalidInput("is not http or https", field="url", code="invalid_url")
        address = literal_address(url)
        return url.with_host(str(address)) if isinstance(address, IPv4Address) else url
    except ValueError as error:
        raise InvalidInput(str(error), field="url", code="invalid_url") from None
