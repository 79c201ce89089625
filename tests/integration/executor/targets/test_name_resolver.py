"""Look-ups of names whose name server never answers."""

import asyncio
import socket
from collections.abc import Iterator
from typing import Any

import pytest
from aiohttp import AsyncResolver
from aiohttp.abc import ResolveResult
from tests.fakes.attempts import attempt
from tests.integration.executor.targets.servers import LOOPBACK, HttpServer
from yarl import URL

from harebell.contract.message import parse
from harebell.contract.target import HttpTarget
from harebell.domain.retry import Failure
from harebell.domain.tenant_policy import TenantPolicies
from harebell.domain.url_policy import Egress
from harebell.executor.targets import name_resolver
from harebell.executor.targets.http import HttpTargets
from harebell.executor.targets.name_resolver import MAX_LOOKUPS, TENANT, BoundedResolver

TIMEOUT = 0.5  # seconds of one look-up in these tests


@pytest.fixture(autouse=True)
def short_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(name_resolver, "LOOKUP_TIMEOUT", TIMEOUT)


@pytest.fixture
def silent() -> Iterator[str]:
    """Yield the address of a name server that never answers."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
        server.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{server.getsockname()[1]}"


async def look_up(resolver: BoundedResolver, tenant: str, host: str) -> str:
    TENANT.set(tenant)  # each task has its own context
    try:
        return str((await resolver.resolve(host, 80))[0]["host"])
    except OSError as error:
        return str(error.strerror)


@pytest.mark.requirement("P5")
async def test_names_that_nobody_knows_delay_no_name_of_another_tenant(silent: str) -> None:
    resolver = BoundedResolver(AsyncResolver(nameservers=[silent]))
    hanging = [
        asyncio.create_task(look_up(resolver, "acme", f"host-{number}.example"))
        for number in range(10 * MAX_LOOKUPS)
    ]
    await asyncio.sleep(0.05)

    async with asyncio.timeout(TIMEOUT / 2):
        found = await asyncio.create_task(look_up(resolver, "umbrella", "localhost"))
    reasons = set(await asyncio.gather(*hanging))
    await resolver.close()

    assert found in ("127.0.0.1", "::1")
    assert reasons == {f"The name servers did not answer within {TIMEOUT:g} s."}


async def test_tenant_has_a_bounded_number_of_look_ups() -> None:
    running, longest = 0, 0

    class Slow(AsyncResolver):
        async def resolve(self, *_: Any, **__: Any) -> list[ResolveResult]:
            nonlocal running, longest
            running += 1
            longest = max(longest, running)
            await asyncio.sleep(0.01)
            running -= 1
            raise OSError(0, "no such name")

    resolver = BoundedResolver(Slow())
    await asyncio.gather(*(look_up(resolver, "acme", f"host-{n}") for n in range(3 * MAX_LOOKUPS)))
    await resolver.close()

    assert longest == MAX_LOOKUPS


async def test_attempt_fails_when_no_name_server_answers(silent: str) -> None:
    policies = TenantPolicies.unrestricted()
    resolver = AsyncResolver(nameservers=[silent])
    target = parse(HttpTarget, {"http": {"url": "http://silent.example/"}})
    async with HttpTargets(Egress(), policies, resolver=resolver) as http:
        outcome = await http.call(target.http, attempt(), 10.0)

    assert isinstance(outcome, Failure)
    assert (outcome.code, outcome.retryable) == ("dns_failed", True)


async def test_host_names_of_the_machine_are_known(server: HttpServer) -> None:
    policies = TenantPolicies.unrestricted()
    url = f"http://localhost:{URL(server.url).port}/"
    target = parse(HttpTarget, {"http": {"url": url}})
    async with HttpTargets(Egress(LOOPBACK), policies) as http:
        outcome = await http.call(target.http, attempt(), 10.0)

    assert not isinstance(outcome, Failure)
