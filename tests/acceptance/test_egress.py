"""An HTTP target of a tenant reaches no private address that an operator has not named.

The schedules are put with the login of the tenant, on a broker with the definitions file.
"""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web
from tests.acceptance.production import Production
from tests.acceptance.stack import run_id
from tests.rig.servers import Servers

from harebell.client import CommandRejected
from harebell.dev.plan import ServiceKind

pytestmark = [
    pytest.mark.broker,
    pytest.mark.postgres,
    pytest.mark.broker_version,
    pytest.mark.requirement("P12"),
]

ACME = "acme"
NAMED, UNNAMED = "127.0.0.1", "127.0.0.2"  # the operator names only the first one
LATER = {"every": "30d", "start": "2150-01-01T00:00:00Z"}  # only a trigger makes a run
CHANGE_URL = """
    UPDATE schedule_versions
    SET definition = jsonb_set(definition::jsonb, '{target,http,url}', to_jsonb($2::text)),
        run_spec = jsonb_set(run_spec::jsonb, '{target,http,url}', to_jsonb($2::text))
    WHERE schedule_id = $1
"""
LITERALS = (
    f"http://{UNNAMED}/",
    "http://2130706434/",  # the same address as one number
    "http://[::ffff:7f00:2]/",
    "http://169.254.169.254/latest/meta-data/",
    "http://168.63.129.16/machine",
)


@pytest.fixture(scope="module")
def production(servers: Servers, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Production]:
    root = tmp_path_factory.mktemp("egress")
    with Production.open(servers, root, tenants=(ACME,)) as production:
        production.start(HAREBELL_ALLOWED_NETWORKS=f"{NAMED}/32")
        yield production


@asynccontextmanager
async def two_addresses() -> AsyncIterator[tuple[int, list[str]]]:
    """Serve both addresses at one port, and yield the port and the paths of the requests.

    The first address redirects `/forward` to the second one.
    """
    received: list[str] = []
    port = 0

    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        host = request.host.partition(":")[0]
        received.append(f"{host}{request.path}")
        if request.path == "/forward":
            location = f"http://{UNNAMED}:{port}/inside"
            return web.Response(status=307, headers={"Location": location})
        return web.Response()

    runner = web.ServerRunner(web.Server(answer))
    await runner.setup()
    try:
        first = web.TCPSite(runner, NAMED, 0)
        await first.start()
        port = runner.addresses[0][1]
        await web.TCPSite(runner, UNNAMED, port).start()
        yield port, received
    finally:
        await runner.cleanup()


@pytest.mark.parametrize("url", LITERALS)
async def test_literal_private_address_is_refused_at_intake(
    production: Production, url: str
) -> None:
    async with production.tenant(ACME) as acme:
        with pytest.raises(CommandRejected) as refused:
            await acme.put("inside", {"now": True}, {"http": {"url": url}})
        stored = await acme.ledger.fetchval(
            "SELECT count(*) FROM schedules WHERE tenant = $1", ACME
        )

    assert (refused.value.code, refused.value.field) == ("private_address", "target.http.url")
    assert stored == 0


async def test_executor_reaches_only_the_named_address(production: Production) -> None:
    """Call a URL that an older release has accepted, and follow a redirect."""
    once = {"retry": {"max_attempts": 1}}
    async with production.tenant(ACME) as acme, two_addresses() as (port, received):
        id_ = await acme.put("old", LATER, call(NAMED, port, "/old"), **once)
        await acme.ledger.execute(CHANGE_URL, id_, f"http://{UNNAMED}:{port}/old")
        production.stack.stop("ticker-1")  # its cache contains the target of the put
        production.start(ServiceKind.TICKER)
        await acme.harebell.trigger(key="old")
        redirect = call(NAMED, port, "/forward", follow_redirects=True)
        await acme.put("redirect", {"now": True}, redirect, **once)
        await acme.put("named", {"now": True}, call(NAMED, port, "/named"), **once)

        dead = await acme.until_runs(2, "dead")
        await acme.until_runs(1, "succeeded")
        for run in dead:
            id_ = run_id(str(run["schedule_id"]), run["scheduled_for"])
            (attempt,) = await acme.attempts(id_)
            assert attempt["error_code"] == "private_address"

    assert sorted(received) == [f"{NAMED}/forward", f"{NAMED}/named"]


def call(host: str, port: int, path: str, **more: object) -> dict[str, Any]:
    return {"http": {"url": f"http://{host}:{port}{path}", **more}}
