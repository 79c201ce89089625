"""Integration tests of private addresses, which the HTTP target rejects on every hop."""

import pytest
from aiohttp import web
from tests.fakes.attempts import attempt
from tests.integration.executor.targets.servers import LOOPBACK, HttpServer, Respond, TableResolver
from yarl import URL

from harebell.contract.message import parse
from harebell.contract.target import HttpCall
from harebell.domain.retry import Failure
from harebell.executor.targets.attempt import Success, TargetOutcome
from harebell.executor.targets.http import MAX_REDIRECTS, HttpTargets

SECRETS = {"Authorization": "Bearer x", "X-Api-Key": "x"}


async def call(http: HttpTargets, url: str, **fields: object) -> TargetOutcome:
    return await http.call(parse(HttpCall, {"url": url, **fields}), attempt())


def is_rejected(outcome: TargetOutcome) -> bool:
    return (
        isinstance(outcome, Failure) and outcome.code == "private_address" and not outcome.retryable
    )


def redirects(*locations: str, status: int = 302) -> Respond:
    """Respond with these redirects one after another, and then with 200."""
    remaining = list(locations)

    async def respond(_: web.Request) -> web.StreamResponse:
        if not remaining:
            return web.Response(text="arrived")
        return web.Response(status=status, headers={"Location": remaining.pop(0)})

    return respond


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1",
        "127.1",
        "0x7f.1",
        "2130706433",
        "0177.0.0.1",
        "127.0.0.1.",
        "localhost",
        "[::1]",
        "[::ffff:127.0.0.1]",
        "[::ffff:7f00:1]",
        "[64:ff9b::7f00:1]",
        "①②⑦.0.0.1",
    ],
)
async def test_private_literal_is_rejected(server: HttpServer, host: str) -> None:
    async with HttpTargets([]) as http:
        assert is_rejected(await call(http, f"http://{host}:{URL(server.url).port}/"))

    assert server.received == []


@pytest.mark.parametrize(
    "addresses",
    [
        ["127.0.0.1"],
        ["::1"],
        ["::ffff:127.0.0.1"],
        ["169.254.169.254"],
        ["fe80::1%lo"],
        ["1.1.1.1", "127.0.0.1"],
        ["127.0.0.1", "2606:4700::1111"],
    ],
)
async def test_name_is_rejected_when_one_of_its_addresses_is_private(
    server: HttpServer, addresses: list[str]
) -> None:
    names = TableResolver({"hook.example": addresses})

    async with HttpTargets([], resolver=names) as http:
        outcome = await call(http, f"http://hook.example:{URL(server.url).port}/")

    assert is_rejected(outcome)
    assert not any(address in str(outcome) for address in addresses)
    assert server.received == []


async def test_result_of_the_system_resolver_is_checked(server: HttpServer) -> None:
    async with HttpTargets([]) as http:
        outcome = await call(http, f"http://localhost.:{URL(server.url).port}/")

    assert is_rejected(outcome)


async def test_connection_uses_the_address_that_was_checked(server: HttpServer) -> None:
    names = TableResolver({"hook.example": ["127.0.0.1"]})

    async with HttpTargets(LOOPBACK, resolver=names) as http:
        outcome = await call(http, f"http://hook.example:{URL(server.url).port}/")

    assert outcome == Success(200)
    assert names.calls == 1
    assert server.received[0].headers["Host"].startswith("hook.example")


@pytest.mark.parametrize("host", ["0x7f.1", "2130706433", "①②⑦.0.0.1", "127.0.0.1."])
async def test_unusual_spelling_of_an_allowed_address_is_accepted(
    http: HttpTargets, server: HttpServer, host: str
) -> None:
    assert await call(http, f"http://{host}:{URL(server.url).port}/") == Success(200)


async def test_proxy_of_the_environment_receives_no_request(
    http: HttpTargets, server: HttpServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("http_proxy", "HTTP_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")  # no proxy listens there
    server.respond = redirects()

    assert await call(http, server.url) == Success(200, "arrived")


async def test_redirect_is_not_followed_by_default(http: HttpTargets, server: HttpServer) -> None:
    server.respond = redirects("/to")

    outcome = await call(http, server.url)

    assert outcome == Failure("http_302", "HTTP 302", retryable=False, http_status=302)
    assert len(server.received) == 1


async def test_redirects_are_followed_on_request(http: HttpTargets, server: HttpServer) -> None:
    server.respond = redirects("/a", "/b", status=307)

    outcome = await call(http, server.url, json={"a": 1}, headers=SECRETS, follow_redirects=True)

    assert outcome == Success(200, "arrived")
    assert [received.path for received in server.received] == ["/", "/a", "/b"]
    assert all(received.body == b'{"a":1}' for received in server.received)
    assert all(received.headers["X-Api-Key"] == "x" for received in server.received)


async def test_redirect_to_another_origin_sends_no_secrets(server: HttpServer) -> None:
    port = URL(server.url).port
    server.respond = redirects(f"http://b.example:{port}/", status=308)
    names = TableResolver({"a.example": ["127.0.0.1"], "b.example": ["127.0.0.1"]})

    async with HttpTargets(LOOPBACK, resolver=names) as http:
        url = f"http://a.example:{port}/"
        await call(http, url, json={"a": 1}, headers=SECRETS, follow_redirects=True)

    first, second = server.received
    assert first.headers["Authorization"] == "Bearer x"
    assert not SECRETS.keys() & second.headers.keys()
    assert second.headers["Harebell-Attempt"] == "1"
    assert second.body == b'{"a":1}'


@pytest.mark.parametrize(
    "location",
    [
        "http://10.0.0.1/",
        "http://169.254.169.254/latest/",
        "http://[fd00:ec2::254]/",
        "http://0xA9FEA9FE/",
        "http://[::ffff:10.0.0.1]/",
        "//private.example/",
    ],
)
async def test_redirect_to_a_private_address_is_rejected(server: HttpServer, location: str) -> None:
    server.respond = redirects("/on", location)
    names = TableResolver({"private.example": ["10.0.0.1"]})

    async with HttpTargets(LOOPBACK, resolver=names) as http:
        outcome = await call(http, server.url, follow_redirects=True)

    assert is_rejected(outcome)
    assert len(server.received) == 2


async def test_attempt_fails_after_too_many_redirects(
    http: HttpTargets, server: HttpServer
) -> None:
    server.respond = redirects(*["/again"] * 100)

    outcome = await call(http, server.url, follow_redirects=True)

    assert outcome == Failure(
        "too_many_redirects",
        f"The target sent more than {MAX_REDIRECTS} redirects.",
        retryable=False,
    )
    assert len(server.received) == MAX_REDIRECTS + 1


async def test_redirect_is_rejected_when_its_scheme_is_not_http(
    http: HttpTargets, server: HttpServer
) -> None:
    server.respond = redirects("file:///etc/passwd")

    outcome = await call(http, server.url, follow_redirects=True)

    assert isinstance(outcome, Failure)
    assert (outcome.code, outcome.retryable) == ("invalid_url", False)
