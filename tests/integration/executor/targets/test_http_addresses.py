"""Private addresses are refused by every way that leads to one, on every hop."""

import pytest
from aiohttp import web
from tests.fakes.attempts import attempt
from tests.integration.executor.targets.servers import LOOPBACK, Answer, Names, Server
from yarl import URL

from harebell.contract.message import parse
from harebell.contract.target import HttpCall
from harebell.domain.retry import Failure
from harebell.executor.targets.attempt import Outcome, Success
from harebell.executor.targets.http import MAX_REDIRECTS, HttpTargets

SECRETS = {"Authorization": "Bearer x", "X-Api-Key": "x"}


async def call(http: HttpTargets, url: str, **fields: object) -> Outcome:
    return await http.call(parse(HttpCall, {"url": url, **fields}), attempt())


def is_refused(outcome: Outcome) -> bool:
    return (
        isinstance(outcome, Failure) and outcome.code == "private_address" and not outcome.retryable
    )


def redirects(*locations: str, status: int = 302) -> Answer:
    """Answers with these in turn, then with 200."""
    left = list(locations)

    async def answer(_: web.Request) -> web.StreamResponse:
        if not left:
            return web.Response(text="arrived")
        return web.Response(status=status, headers={"Location": left.pop(0)})

    return answer


@pytest.mark.parametrize(
    "host",
    [
        *("127.0.0.1", "127.1", "0x7f.1", "2130706433", "0177.0.0.1", "127.0.0.1.", "localhost"),
        *("[::1]", "[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "[64:ff9b::7f00:1]", "①②⑦.0.0.1"),
    ],
)
async def test_a_literal_is_refused(server: Server, host: str) -> None:
    async with HttpTargets([]) as http:
        assert is_refused(await call(http, f"http://{host}:{URL(server.url).port}/"))

    assert server.received == []


@pytest.mark.parametrize(
    "addresses",
    [
        *(["127.0.0.1"], ["::1"], ["::ffff:127.0.0.1"], ["169.254.169.254"], ["fe80::1%lo"]),
        *(["1.1.1.1", "127.0.0.1"], ["127.0.0.1", "2606:4700::1111"]),
    ],
)
async def test_a_name_is_refused_by_any_of_its_addresses(
    server: Server, addresses: list[str]
) -> None:
    names = Names({"hook.example": addresses})

    async with HttpTargets([], resolver=names) as http:
        outcome = await call(http, f"http://hook.example:{URL(server.url).port}/")

    assert is_refused(outcome)
    assert not any(address in str(outcome) for address in addresses)
    assert server.received == []


async def test_the_machines_own_name_service_is_judged_too(server: Server) -> None:
    async with HttpTargets([]) as http:
        outcome = await call(http, f"http://localhost.:{URL(server.url).port}/")

    assert is_refused(outcome)


async def test_a_name_is_reached_at_the_address_that_was_judged(server: Server) -> None:
    names = Names({"hook.example": ["127.0.0.1"]})

    async with HttpTargets(LOOPBACK, resolver=names) as http:
        outcome = await call(http, f"http://hook.example:{URL(server.url).port}/")

    assert outcome == Success(200)
    assert names.asked == 1
    assert server.received[0].headers["Host"].startswith("hook.example")


@pytest.mark.parametrize("host", ["0x7f.1", "2130706433", "①②⑦.0.0.1", "127.0.0.1."])
async def test_an_odd_spelling_of_an_allowed_address_works(
    http: HttpTargets, server: Server, host: str
) -> None:
    assert await call(http, f"http://{host}:{URL(server.url).port}/") == Success(200)


async def test_redirects_are_not_followed_unless_asked(http: HttpTargets, server: Server) -> None:
    server.answer = redirects("/to")

    outcome = await call(http, server.url)

    assert outcome == Failure("http_302", "HTTP 302", retryable=False, http_status=302)
    assert len(server.received) == 1


async def test_redirects_are_followed_when_asked(http: HttpTargets, server: Server) -> None:
    server.answer = redirects("/a", "/b", status=307)

    outcome = await call(http, server.url, json={"a": 1}, headers=SECRETS, follow_redirects=True)

    assert outcome == Success(200, "arrived")
    assert [received.path for received in server.received] == ["/", "/a", "/b"]
    assert all(received.body == b'{"a":1}' for received in server.received)
    assert all(received.headers["X-Api-Key"] == "x" for received in server.received)


async def test_another_origin_is_not_told_the_secrets(server: Server) -> None:
    port = URL(server.url).port
    server.answer = redirects(f"http://b.example:{port}/", status=308)
    names = Names({"a.example": ["127.0.0.1"], "b.example": ["127.0.0.1"]})

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
        *("http://10.0.0.1/", "http://169.254.169.254/latest/", "http://[fd00:ec2::254]/"),
        *("http://0xA9FEA9FE/", "http://[::ffff:10.0.0.1]/", "//private.example/"),
    ],
)
async def test_a_redirect_to_a_private_address_is_refused(server: Server, location: str) -> None:
    server.answer = redirects("/on", location)
    names = Names({"private.example": ["10.0.0.1"]})

    async with HttpTargets(LOOPBACK, resolver=names) as http:
        outcome = await call(http, server.url, follow_redirects=True)

    assert is_refused(outcome)
    assert len(server.received) == 2


async def test_redirects_without_end_are_ended(http: HttpTargets, server: Server) -> None:
    server.answer = redirects(*["/again"] * 100)

    outcome = await call(http, server.url, follow_redirects=True)

    assert outcome == Failure("too_many_redirects", f"over {MAX_REDIRECTS}", retryable=False)
    assert len(server.received) == MAX_REDIRECTS + 1


async def test_a_redirect_elsewhere_than_http_is_refused(http: HttpTargets, server: Server) -> None:
    server.answer = redirects("file:///etc/passwd")

    outcome = await call(http, server.url, follow_redirects=True)

    assert isinstance(outcome, Failure)
    assert (outcome.code, outcome.retryable) == ("invalid_url", False)
