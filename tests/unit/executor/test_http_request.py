"""Unit tests of the HTTP request of an attempt, and of the request after a redirect."""

import pytest
from tests.fakes.attempts import attempt

from harebell.contract.errors import InvalidInput
from harebell.contract.message import parse
from harebell.contract.target import HttpCall
from harebell.executor.targets.http_request import USER_AGENT, HttpRequest, redirect_of, request_of

SECRETS = {"Authorization": "Bearer x", "Cookie": "a=b", "X-Api-Key": "x"}


def request(
    method: str = "POST", url: str = "https://a.example/from", **fields: object
) -> HttpRequest:
    return request_of(parse(HttpCall, {"method": method, "url": url, **fields}), attempt())


def test_request_has_default_headers() -> None:
    headers = request(json={}).all_headers()

    assert headers["User-Agent"] == USER_AGENT
    assert headers["Accept-Encoding"] == "identity"
    assert headers["Content-Type"] == "application/json"
    assert headers["Idempotency-Key"] == attempt().ticket.run_id


def test_headers_of_the_user_replace_the_defaults() -> None:
    given = {"user-agent": "acme", "CONTENT-TYPE": "application/problem+json"}

    headers = request(json={}, headers=given).all_headers()

    assert headers.getall("User-Agent") == ["acme"]
    assert headers.getall("Content-Type") == ["application/problem+json"]


def test_request_without_a_body_has_no_content_type() -> None:
    assert "Content-Type" not in request().all_headers()


@pytest.mark.parametrize("host", ["0x7f.1", "2130706433", "①②⑦.1", "127.0.0.1."])
def test_request_has_the_usual_form_of_a_literal_address(host: str) -> None:
    assert request(url=f"http://{host}:81/x").url.raw_host == "127.0.0.1"


@pytest.mark.parametrize("status", [200, 300, 304, 305, 306, 404])
def test_redirect_does_not_happen_for_other_statuses(status: int) -> None:
    assert redirect_of(request(), status, "/to") is None


def test_redirect_does_not_happen_without_a_location() -> None:
    assert redirect_of(request(), 302, None) is None


@pytest.mark.parametrize(
    ("status", "method", "expected"),
    [
        (301, "POST", "GET"),
        (302, "POST", "GET"),
        (303, "POST", "GET"),
        (303, "PUT", "GET"),
        (301, "PUT", "PUT"),
        (302, "DELETE", "DELETE"),
        (303, "HEAD", "HEAD"),
        (307, "POST", "POST"),
        (308, "POST", "POST"),
        (301, "GET", "GET"),
    ],
)
def test_redirect_keeps_or_replaces_the_method_by_its_status(
    status: int, method: str, expected: str
) -> None:
    next_request = redirect_of(request(method, json={"a": 1}), status, "/to")

    assert next_request is not None
    assert next_request.method == expected
    has_changed = method != expected
    assert (next_request.body is None) == has_changed
    assert ("Content-Type" not in next_request.headers) == has_changed


@pytest.mark.parametrize("location", ["/to", "to", "https://a.example:443/to", "//a.example/to"])
def test_redirect_to_the_same_origin_keeps_all_headers(location: str) -> None:
    next_request = redirect_of(request(headers=SECRETS), 307, location)

    assert next_request is not None
    assert str(next_request.url) == "https://a.example/to"
    assert next_request.headers.items() >= SECRETS.items()


@pytest.mark.parametrize(
    "location",
    ["http://a.example/to", "https://a.example:8443/to", "//b.example/to", "https://u:p@c.example"],
)
def test_redirect_to_another_origin_removes_secrets(location: str) -> None:
    given = {**SECRETS, "Accept": "text/plain"}

    next_request = redirect_of(request(url="https://me:x@a.example/", headers=given), 307, location)

    assert next_request is not None
    assert not SECRETS.keys() & next_request.headers.keys()
    assert next_request.headers["Accept"] == "text/plain"
    assert next_request.all_headers()["Harebell-Attempt"] == "1"
    assert next_request.url.user is None
    assert next_request.url.password is None


@pytest.mark.requirement("P12")
@pytest.mark.parametrize("status", [307, 308])
def test_redirect_to_another_origin_keeps_the_method_and_has_no_body(status: int) -> None:
    own = redirect_of(request(json={"a": 1}), status, "/to")
    other = redirect_of(request(json={"a": 1}), status, "https://b.example/to")

    assert own is not None
    assert (own.method, own.body) == ("POST", b'{"a":1}')
    assert other is not None
    assert (other.method, other.body) == ("POST", None)
    assert "Content-Type" not in other.headers


@pytest.mark.parametrize("location", ["file:///etc/passwd", "ftp://a.example/", "http://[::1"])
def test_redirect_is_invalid_when_the_scheme_is_not_http(location: str) -> None:
    with pytest.raises(InvalidInput):
        redirect_of(request(), 302, location)
