"""Services with one database connection each, and a database that refuses every connection."""

import asyncio
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Iterator

import asyncpg
import pytest
from tests.acceptance.faults import assert_each_once, put_spread
from tests.acceptance.recording_target import Target
from tests.acceptance.stack import Stack
from tests.rig.polling import POLL_INTERVAL, WAIT_TIMEOUT, until
from tests.rig.servers import Servers, accept_connections, refuse_connections

from harebell.bootstrap.service_context import MAX_CLOCK_AGE
from harebell.dev.plan import ServiceCounts, name_of
from harebell.dev.processes import is_ready

pytestmark = [pytest.mark.broker, pytest.mark.postgres]

RUNS = 400
SPREAD = 4.0  # seconds from the first run to the last
QUERIES = 40
PAIRS = ServiceCounts(tickers=2, dispatchers=2, executors=2)
READY_TIMEOUT = 15.0  # seconds from the first accepted connection until every service is ready
NOT_READY = 503

_CONNECTIONS = """
SELECT application_name, count(*) FROM pg_stat_activity
WHERE datname = current_database() AND usename LIKE 'harebell\\_%' GROUP BY 1
"""


@pytest.fixture(scope="module")
def stack(servers: Servers, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """Yield a stack whose services have one open database connection each."""
    with Stack.open(servers, tmp_path_factory.mktemp("saturated")) as opened:
        opened.start(PAIRS, HAREBELL_DATABASE_POOL_MIN="1", HAREBELL_DATABASE_POOL_MAX="1")
        yield opened


async def watch_connections(ledger_url: str, max_connections: Counter[str]) -> None:
    """Record the maximum number of connections of each service until the task is cancelled."""
    ledger = await asyncpg.connect(ledger_url)
    try:
        while True:
            max_connections |= Counter(dict(await ledger.fetch(_CONNECTIONS)))
            await asyncio.sleep(POLL_INTERVAL)
    finally:
        await ledger.close()


@pytest.mark.long
@pytest.mark.requirement("S57")
async def test_requests_wait_when_each_service_has_one_connection(
    stack: Stack, target: Target
) -> None:
    max_connections: Counter[str] = Counter()
    watching = asyncio.create_task(watch_connections(stack.database_url, max_connections))
    async with stack.tenant("one-connection") as tenant:
        hook = target.http("one-connection", sleep=0.1)
        expected = await put_spread(tenant, hook, RUNS, first=1, over=SPREAD)
        queries = (tenant.harebell.schedule(key=f"one-{n}") for n in range(QUERIES))
        responses = await asyncio.gather(*queries)
        runs = await tenant.until_runs(RUNS, "succeeded", within=2 * WAIT_TIMEOUT)
    watching.cancel()

    assert len(set(expected)) == RUNS
    assert [str(response.id) for response in responses] == expected[:QUERIES]
    assert_each_once(target.calls("one-connection"), runs, RUNS)
    services = {name_of(*member) for member in PAIRS.members()}
    assert max_connections == Counter(services)


def readiness_of(port: int) -> tuple[int, str]:
    """Return the status and the body of `/readyz`."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=5) as response:
            return response.status, response.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


@pytest.mark.long
@pytest.mark.requirement("S57")
async def test_services_wait_and_catch_up_when_every_connection_is_refused(
    stack: Stack, target: Target
) -> None:
    members = PAIRS.members()
    ports = [stack.services.plan(*member).port for member in members]
    pids = [stack.services.process(name_of(*member)) for member in members]

    async def states() -> list[tuple[int, str]]:
        return [await asyncio.to_thread(readiness_of, port) for port in ports]

    async def all_report_the_database() -> bool:
        return all(
            code == NOT_READY and "[-] database" in output for code, output in await states()
        )

    async def all_ready() -> bool:
        return all([await asyncio.to_thread(is_ready, port) for port in ports])

    async with stack.tenant("refused") as tenant:
        expected = await put_spread(tenant, target.http("refused"), RUNS, first=2, over=SPREAD)
        await refuse_connections(tenant.ledger)
        await until(
            all_report_the_database,
            within=MAX_CLOCK_AGE + WAIT_TIMEOUT,
            what="the failed readiness check of every service",
        )
        await accept_connections(tenant.ledger)
        await until(all_ready, within=READY_TIMEOUT, what="every service's readiness")
        runs = await tenant.until_runs(RUNS, "succeeded", within=2 * WAIT_TIMEOUT)

    assert len(set(expected)) == RUNS
    assert_each_once(target.calls("refused"), runs, RUNS)
    assert [stack.services.process(name_of(*member)) for member in members] == pids
