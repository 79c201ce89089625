"""Integration tests of private addresses, which the HTTP target rejects on every hop."""

from ipaddress import ip_network
from typing import Any

import pytest
from aiohttp import web
from tests.fakes.attempts import attempt
from tests.integration.executor.targets.servers import (
    LOOPBACK,
    SECONDS,
    UNRESTRICTED,
    HttpServer,
    Respond,
    TableResolver,
)
from yarl import URL

from harebell.contract.message import parse
from harebell.contract.target import HttpCall
from harebell.domain.retry import Failure
from harebell.domain.tenant_policy import TenantPolicies
from harebell.domain.url_policy import Egress
from harebell.executor.targets.attempt import Success, TargetOutcome
from harebell.executor.targets.http import MAX_REDIRECTS, HttpTargets

SECRETS = {"Authorization": "Bearer x", "X-Api-Key": "x"}


async def call(http: HttpTargets, url: str, **fields: object) -> TargetOutcome:
    return await http.call(parse(HttpCall, {"url": url, **fields}), attempt(), SECONDS)


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
    async with HttpTargets(Egress(), UNRESTRICTED) as http:
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

    async with HttpTargets(Egress(), UNRESTRICTED, resolver=names) as http:
        outcome = await call(http, f"http://hook.example:{URL(server.url).port}/")

    assert is_rejected(outcome)
    assert not any(address in str(outcome) for address in addresses)
    assert server.received == []


async def test_result_of_the_system_resolver_is_checked(server: HttpServer) -> None:
    async with HttpTargets(Egress(), UNRESTRICTED) as http:
        outcome = await call(http, f"http://localhost.:{URL(server.url).port}/")

    assert is_rejected(outcome)


async def test_connection_uses_the_address_that_was_checked(server: HttpServer) -> None:
    names = TableResolver({"hook.example": ["127.0.0.1"]})

    async with HttpTargets(Egress(LOOPBACK), UNRESTRICTED, resolver=names) as http:
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

    assert outcome == Failure("http_302", "HTTP 302 to /to", retryable=False, http_status=302)
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
    server.respond = redirects(f"http://b.example:{port}/", status=303)
    names = TableResolver({"a.example": ["127.0.0.1"], "b.example": ["127.0.0.1"]})

    async with HttpTargets(Egress(LOOPBACK), UNRESTRICTED, resolver=names) as http:
        url = f"http://a.example:{port}/"
        await call(http, url, json={"a": 1}, headers=SECRETS, follow_redirects=True)

    first, second = server.received
    assert first.headers["Authorization"] == "Bearer x"
    assert not SECRETS.keys() & second.headers.keys()
    assert second.headers["Harebell-Attempt"] == "1"
    assert (second.method, second.body) == ("GET", b"")
    assert "Content-Type" not in second.headers


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

    async with HttpTargets(Egress(LOOPBACK), UNRESTRICTED, resolver=names) as http:
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


def policies(**fields: Any) -> TenantPolicies:
    """Return the policies of an installation whose attempts have the tenant `default`."""
    return TenantPolicies.parse({"tenants": {"default": fields}})


@pytest.mark.requirement("P12")
@pytest.mark.parametrize(
    ("fields", "rule"),
    [
        ({"networks": ["10.0.0.0/8"]}, "networks"),
        ({"networks": []}, "ports"),
        ({"hosts": ["b.example"]}, "hosts"),
        ({"networks": ["127.0.0.0/8"], "hosts": ["*.example"]}, None),
        ({}, None),
    ],
)
async def test_policy_of_the_tenant_bounds_the_addresses_of_names(
    server: HttpServer, fields: dict[str, Any], rule: str | None
) -> None:
    names = TableResolver({"a.example": ["127.0.0.1"]})

    async with HttpTargets(Egress(LOOPBACK), policies(**fields), resolver=names) as http:
        outcome = await call(http, f"http://a.example:{URL(server.url).port}/")

    if rule is None:
        assert outcome == Success(200)
        return
    assert isinstance(outcome, Failure)
    assert (outcome.code, outcome.retryable) == ("not_allowed", False)
    assert outcome.message.startswith("target.http.url: ")
    assert "127.0.0.1" not in outcome.message
    assert server.received == []


@pytest.mark.requirement("P12")
async def test_one_cached_name_has_the_policy_of_each_tenant(server: HttpServer) -> None:
    names = TableResolver({"a.example": ["127.0.0.1"]})
    url = f"http://a.example:{URL(server.url).port}/"
    both = TenantPolicies.parse({"tenants": {"default": {}, "acme": {"networks": ["10.0.0.0/8"]}}})
    other = attempt()
    spec = other.ticket.run_spec.model_copy(update={"tenant": "acme"})
    other = other._replace(ticket=other.ticket.model_copy(update={"run_spec": spec}))

    async with HttpTargets(Egress(LOOPBACK), both, resolver=names) as http:
        permitted = await call(http, url)
        refused = await http.call(parse(HttpCall, {"url": url}), other, SECONDS)
        again = await call(http, url)

    assert names.calls == 1
    assert (permitted, again) == (Success(200), Success(200))
    assert isinstance(refused, Failure)
    assert refused.code == "not_allowed"
    assert len(server.received) == 2


@pytest.mark.requirement("P12")
async def test_redirect_to_a_host_outside_the_policy_is_refused(server: HttpServer) -> None:
    port = URL(server.url).port
    server.respond = redirects(f"http://b.example:{port}/")
    names = TableResolver({"a.example": ["127.0.0.1"], "b.example": ["127.0.0.1"]})

    async with HttpTargets(Egress(LOOPBACK), policies(hosts=["a.example"]), resolver=names) as http:
        outcome = await call(http, f"http://a.example:{port}/", follow_redirects=True)

    assert isinstance(outcome, Failure)
    assert outcome.code == "not_allowed"
    assert [each.headers["Host"] for each in server.received] == [f"a.example:{port}"]


@pytest.mark.requirement("P12")
async def test_denied_network_is_not_reached_although_it_is_allowed(server: HttpServer) -> None:
    egress = Egress(LOOPBACK, [ip_network("127.0.0.0/30")])
    names = TableResolver({"a.example": ["127.0.0.1"]})

    async with HttpTargets(egress, UNRESTRICTED, resolver=names) as http:
        outcomes = [
            await call(http, f"http://{host}:{URL(server.url).port}/")
            for host in ("a.example", "127.0.0.1")
        ]

    assert all(is_rejected(outcome) for outcome in outcomes)
    assert server.received == []


@pytest.mark.requirement("P12")
async def test_proxy_receives_each_request_and_no_name_is_resolved(server: HttpServer) -> None:
    async with HttpTargets(
        Egress(), policies(hosts=["*.example"]), proxy=server.url, resolver=TableResolver({})
    ) as http:
        permitted = await call(http, "http://a.example/x")
        refused = await call(http, "http://other.test/")
        private = await call(http, "http://169.254.169.254/")

    assert permitted == Success(200)
    assert isinstance(refused, Failure)
    assert refused.code == "not_allowed"
    assert is_rejected(private)
    assert [each.headers["Host"] for each in server.received] == ["a.example"]
