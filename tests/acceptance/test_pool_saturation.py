"""As few connections to the database as can be, and a database that refuses every one."""

import asyncio
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Iterator

import asyncpg
import pytest
from tests.acceptance.faults import assert_each_once, put_spread
from tests.acceptance.recording_target import Target
from tests.acceptance.stack import POLL_INTERVAL, WAIT_TIMEOUT, Stack, until
from tests.rig.servers import Servers, accept_connections, refuse_connections

from harebell.bootstrap.service_context import MAX_CLOCK_AGE
from harebell.dev.plan import ServiceCounts, name_of
from harebell.dev.processes import is_ready

pytestmark = [pytest.mark.broker, pytest.mark.postgres]

RUNS = 400
OVER = 4.0  # seconds from the first of them to the last
QUESTIONS = 40
PAIRS = ServiceCounts(tickers=2, dispatchers=2, executors=2)
HEALING = 15.0  # seconds from the first accepted connection until every service is ready
NOT_READY = 503

_CONNECTIONS = """
SELECT application_name, count(*) FROM pg_stat_activity
WHERE datname = current_database() AND usename LIKE 'harebell\\_%' GROUP BY 1
"""


@pytest.fixture(scope="module")
def stack(servers: Servers, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """One connection each, kept open."""
    with Stack.open(servers, tmp_path_factory.mktemp("saturated")) as opened:
        opened.start(PAIRS, HAREBELL_DATABASE_POOL_MIN="1", HAREBELL_DATABASE_POOL_MAX="1")
        yield opened


async def watch_connections(ledger_url: str, seen: Counter[str]) -> None:
    """Until cancelled: the most connections that each service had."""
    ledger = await asyncpg.connect(ledger_url)
    try:
        while True:
            seen |= Counter(dict(await ledger.fetch(_CONNECTIONS)))
            await asyncio.sleep(POLL_INTERVAL)
    finally:
        await ledger.close()


@pytest.mark.requirement("S57")
async def test_with_one_connection_each_all_that_comes_at_once_waits_its_turn(
    stack: Stack, target: Target
) -> None:
    seen: Counter[str] = Counter()
    watching = asyncio.create_task(watch_connections(stack.database_url, seen))
    async with stack.tenant("one-connection") as tenant:
        hook = target.http("one-connection", sleep=0.1)
        expected = await put_spread(tenant, hook, RUNS, first=1, over=OVER)
        asked = (tenant.harebell.schedule(key=f"one-{n}") for n in range(QUESTIONS))
        responses = await asyncio.gather(*asked)
        runs = await tenant.until_runs(RUNS, "succeeded", within=2 * WAIT_TIMEOUT)
    watching.cancel()

    assert len(set(expected)) == RUNS
    assert [str(response.id) for response in responses] == expected[:QUESTIONS]
    assert_each_once(target.calls("one-connection"), runs, RUNS)
    services = {name_of(*member) for member in PAIRS.members()}
    # intake asks what time it is apart from what others ask of it
    assert seen == Counter(services) + Counter(["intake-1"])


def state_of(port: int) -> tuple[int, str]:
    """What a service answers on `/readyz`."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=5) as response:
            return response.status, response.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


@pytest.mark.requirement("S57")
async def test_while_every_connection_is_refused_services_wait_say_so_and_then_catch_up(
    stack: Stack, target: Target
) -> None:
    members = PAIRS.members()
    ports = [stack.services.plan(*member).port for member in members]
    pids = [stack.services.process(name_of(*member)) for member in members]

    async def states() -> list[tuple[int, str]]:
        return [await asyncio.to_thread(state_of, port) for port in ports]

    async def all_wait() -> bool:
        return all(code == NOT_READY and "[-] database" in output for code, output in await states())

    async def all_ready() -> bool:
        return all([await asyncio.to_thread(is_ready, port) for port in ports])

    async with stack.tenant("refused") as tenant:
        expected = await put_spread(tenant, target.http("refused"), RUNS, first=2, over=OVER)
        await refuse_connections(tenant.ledger)
        await until(all_wait, within=MAX_CLOCK_AGE + WAIT_TIMEOUT, what="services that say why they wait")
        await accept_connections(tenant.ledger)
        await until(all_ready, within=HEALING, what="every service's readiness")
        runs = await tenant.until_runs(RUNS, "succeeded", within=2 * WAIT_TIMEOUT)

    assert len(set(expected)) == RUNS
    assert_each_once(target.calls("refused"), runs, RUNS)
    assert [stack.services.process(name_of(*member)) for member in members] == pids
