"""The request of an attempt: whose headers it has, and what a redirect makes of it."""

import pytest
from tests.fakes.attempts import attempt

from harebell.contract.errors import InvalidInput
from harebell.contract.message import parse
from harebell.contract.target import HttpCall
from harebell.executor.targets.http_request import USER_AGENT, HttpRequest, redirected, request_of

SECRETS = {"Authorization": "Bearer x", "Cookie": "a=b", "X-Api-Key": "x"}


def request(
    method: str = "POST", url: str = "https://a.example/from", **fields: object
) -> HttpRequest:
    return request_of(parse(HttpCall, {"method": method, "url": url, **fields}), attempt())


def test_the_headers_that_are_not_given() -> None:
    headers = request(json={}).all_headers()

    assert headers["User-Agent"] == USER_AGENT
    assert headers["Accept-Encoding"] == "identity"
    assert headers["Content-Type"] == "application/json"
    assert headers["Idempotency-Key"] == attempt().ticket.run_id


def test_those_that_are_given_stand() -> None:
    given = {"user-agent": "acme", "CONTENT-TYPE": "application/problem+json"}

    headers = request(json={}, headers=given).all_headers()

    assert headers.getall("User-Agent") == ["acme"]
    assert headers.getall("Content-Type") == ["application/problem+json"]


def test_no_body_has_no_type() -> None:
    assert "Content-Type" not in request().all_headers()


@pytest.mark.parametrize("host", ["0x7f.1", "2130706433", "①②⑦.1", "127.0.0.1."])
def test_an_address_is_requested_as_it_is_judged(host: str) -> None:
    assert request(url=f"http://{host}:81/x").url.raw_host == "127.0.0.1"


@pytest.mark.parametrize("status", [200, 300, 304, 305, 306, 404])
def test_other_answers_lead_nowhere(status: int) -> None:
    assert redirected(request(), status, "/to") is None


def test_nor_does_a_redirect_without_a_location() -> None:
    assert redirected(request(), 302, None) is None


@pytest.mark.parametrize(
    ("status", "method", "expected"),
    [
        *[(301, "POST", "GET"), (302, "POST", "GET"), (303, "POST", "GET"), (303, "PUT", "GET")],
        *[(301, "PUT", "PUT"), (302, "DELETE", "DELETE"), (303, "HEAD", "HEAD")],
        *[(307, "POST", "POST"), (308, "POST", "POST"), (301, "GET", "GET")],
    ],
)
def test_the_method_of_the_next_hop(status: int, method: str, expected: str) -> None:
    following = redirected(request(method, json={"a": 1}), status, "/to")

    assert following is not None
    assert following.method == expected
    has_changed = method != expected
    assert (following.body is None) == has_changed
    assert ("Content-Type" not in following.headers) == has_changed


@pytest.mark.parametrize("location", ["/to", "to", "https://a.example:443/to", "//a.example/to"])
def test_the_same_origin_gets_all_headers(location: str) -> None:
    following = redirected(request(headers=SECRETS), 307, location)

    assert following is not None
    assert str(following.url) == "https://a.example/to"
    assert following.headers.items() >= SECRETS.items()


@pytest.mark.parametrize(
    "location",
    ["http://a.example/to", "https://a.example:8443/to", "//b.example/to", "https://u:p@c.example"],
)
def test_another_origin_gets_no_secrets(location: str) -> None:
    given = {**SECRETS, "Accept": "text/plain"}

    following = redirected(request(url="https://me:x@a.example/", headers=given), 307, location)

    assert following is not None
    assert not SECRETS.keys() & following.headers.keys()
    assert following.headers["Accept"] == "text/plain"
    assert following.all_headers()["Harebell-Attempt"] == "1"
    assert following.url.user is None
    assert following.url.password is None


@pytest.mark.parametrize("location", ["file:///etc/passwd", "ftp://a.example/", "http://[::1"])
def test_a_redirect_leads_to_http_or_nowhere(location: str) -> None:
    with pytest.raises(InvalidInput):
        redirected(request(), 302, location)
