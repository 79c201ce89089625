"""Unit tests of the HTTP request of an attempt, and of the request after a redirect."""

import base64

import pytest
from tests.fakes.attempts import attempt

from harebell.contract.errors import InvalidInput
from harebell.contract.message import parse
from harebell.contract.target import HttpCall
from harebell.executor.targets.http_request import (
    USER_AGENT,
    HttpRequest,
    RedirectLosesBody,
    redirect_of,
    request_of,
)

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
    assert (next_request.body is None) == (status == 303)
    assert ("Content-Type" not in next_request.headers) == (status == 303)


@pytest.mark.parametrize("status", [301, 302])
def test_post_without_a_body_becomes_a_get_when_it_is_moved(status: int) -> None:
    next_request = redirect_of(request(), status, "/to")

    assert next_request is not None
    assert next_request.method == "GET"


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
    with_headers = request(headers={**SECRETS, "Accept": "text/plain"})
    with_user = request(url="https://me:x@a.example/")

    for given in (with_headers, with_user):
        moved = redirect_of(given, 307, location)

        assert "Authorization" in given.headers
        assert moved is not None
        assert not SECRETS.keys() & moved.headers.keys()
        assert moved.headers.get("Accept") == given.headers.get("Accept")
        assert moved.all_headers()["Harebell-Attempt"] == "1"
        assert moved.url.user is None
        assert moved.url.password is None


@pytest.mark.parametrize("status", [301, 302, 307, 308])
def test_redirect_to_https_on_the_same_host_keeps_everything(status: int) -> None:
    given = request(
        url="http://a.example/hook?sig=a%2Fb", json={"a": 1}, headers={"X-Api-Key": "x"}
    )

    upgraded = redirect_of(given, status, "https://a.example/hook?sig=a%2Fb")

    assert upgraded is not None
    assert (upgraded.method, upgraded.body) == ("POST", b'{"a":1}')
    assert upgraded.headers["X-Api-Key"] == "x"
    assert str(upgraded.url) == "https://a.example/hook?sig=a%2Fb"


@pytest.mark.parametrize("status", [307, 308])
def test_redirect_to_another_port_keeps_the_body_without_secrets(status: int) -> None:
    given = request(json={"a": 1}, headers=SECRETS)

    moved = redirect_of(given, status, "https://a.example:8443/to")

    assert moved is not None
    assert (moved.method, moved.body) == ("POST", b'{"a":1}')
    assert moved.headers["Content-Type"] == "application/json"
    assert not SECRETS.keys() & moved.headers.keys()
    assert moved.signer is None


@pytest.mark.requirement("P12")
@pytest.mark.parametrize(
    ("status", "location"),
    [
        (307, "https://b.example/to"),
        (308, "//b.example/to"),
        (308, "http://a.example/from"),  # without encryption
        (301, "/to"),
        (302, "https://a.example:8443/from"),
        (302, "https://b.example/from"),
    ],
)
def test_redirect_that_would_lose_the_body_is_an_error(status: int, location: str) -> None:
    with pytest.raises(RedirectLosesBody, match=f"HTTP {status} to http.*would lose the body"):
        redirect_of(request(json={"a": 1}), status, location)


def test_redirect_after_303_needs_no_body() -> None:
    other = redirect_of(request(json={"a": 1}), 303, "https://b.example/to")

    assert other is not None
    assert (other.method, other.body) == ("GET", None)
    assert "Content-Type" not in other.headers


@pytest.mark.parametrize(
    ("url", "sent"),
    [
        ("/x?sig=a%2Fb%3d", "/x?sig=a%2Fb%3d"),
        ("/x?sig=a%2fb+c&d=%20", "/x?sig=a%2fb+c&d=%20"),
        ("/a%2Fb/%7Eme/~me", "/a%2Fb/%7Eme/~me"),
        ("/a/../b//c", "/a/../b//c"),
        ("/x?a=[1]&b={2}|'", "/x?a=[1]&b={2}|'"),
        ("/x?a=ä", "/x?a=%C3%A4"),
        ("/100%/%zz", "/100%/%zz"),
        ("/x?", "/x"),
        ("/x#part", "/x"),
        ("", "/"),
        ("?a=1", "/?a=1"),
    ],
)
def test_path_and_query_are_sent_as_they_are_written(url: str, sent: str) -> None:
    assert request(url=f"https://a.example{url}").url.raw_path_qs == sent


@pytest.mark.parametrize(
    ("location", "sent"),
    [
        ("/x?sig=a%2Fb%3d", "/x?sig=a%2Fb%3d"),
        ("?sig=%7e", "/from?sig=%7e"),
        ("https://a.example/%41", "/%41"),
        ("/\udcff", "/%FF"),  # a header in another encoding
    ],
)
def test_path_and_query_of_a_redirect_are_sent_as_they_are_written(
    location: str, sent: str
) -> None:
    next_request = redirect_of(request("GET"), 302, location)

    assert next_request is not None
    assert next_request.url.raw_path_qs == sent


@pytest.mark.parametrize(
    ("userinfo", "pair"),
    [
        ("me:x", "me:x"),
        ("me:ä€", "me:ä€"),
        ("me:p%40s%3As", "me:p@s:s"),
        ("me", "me:"),
        (":x", ":x"),
        ("m%C3%A4:%E2%82%AC", "mä:€"),
    ],
)
def test_user_information_of_the_url_is_sent_in_utf8(userinfo: str, pair: str) -> None:
    made = request(url=f"https://{userinfo}@a.example/")

    token = made.headers["Authorization"].removeprefix("Basic ")
    assert base64.b64decode(token).decode() == pair
    assert str(made.url) == "https://a.example/"


@pytest.mark.parametrize("location", ["file:///etc/passwd", "ftp://a.example/", "http://[::1"])
def test_redirect_is_invalid_when_the_scheme_is_not_http(location: str) -> None:
    with pytest.raises(InvalidInput):
        redirect_of(request(), 302, location)
