"""A kill of the broker, on separate servers."""

import asyncio
from collections.abc import Callable, Iterator

import pytest
from tests.acceptance.faults import assert_each_once, put_spread, until_ready
from tests.acceptance.recording_target import Target
from tests.acceptance.stack import Stack
from tests.rig.polling import until
from tests.rig.servers import Servers, private_servers

from harebell.dev.plan import ServiceCounts

pytestmark = [pytest.mark.broker, pytest.mark.postgres, pytest.mark.broker_version]

WAITING_RUNS = 500  # runs in the delay queues at the kill
READY_TIMEOUT = 15.0  # seconds from an open port until every service consumes again
BACKLOG_TIMEOUT = 30.0  # seconds from then until every run has ended
PAIRS = ServiceCounts(tickers=2, dispatchers=2, executors=2)


@pytest.fixture
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """Yield a stack on servers of its own, which the test may kill."""
    private = private_servers(tmp_path_factory.mktemp("own-servers"))
    try:
        private.start()
        servers = Servers(private.amqp_url, private.database_url, private)
        with Stack.open(servers, tmp_path_factory.mktemp("outages")) as opened:
            opened.start(PAIRS)
            yield opened
    finally:
        private.discard()


@pytest.mark.long
@pytest.mark.requirement("S03", "S58", "S62", "S102", "ASK-5")
async def test_runs_in_delay_queues_run_once_when_the_broker_is_killed(
    stack: Stack, target: Target, record_property: Callable[[str, object], None]
) -> None:
    assert stack.servers.private is not None
    broker = stack.servers.private.broker
    async with stack.tenant("killed-broker") as tenant:
        hook = target.http("outlived")
        expected = await put_spread(tenant, hook, WAITING_RUNS, first=22, over=8)
        staged = await tenant.runs("staged")

        async def depths() -> dict[str, int]:
            return await asyncio.to_thread(stack.delay_queue_depths)

        waited = await until(depths, what="messages in the delay queues")
        await asyncio.to_thread(broker.kill)
        await asyncio.to_thread(broker.start)
        recovery = await until_ready(stack, PAIRS, within=READY_TIMEOUT)
        runs = await tenant.until_runs(WAITING_RUNS, "succeeded", within=30 + BACKLOG_TIMEOUT)

    late = sorted(call.late for call in target.calls("outlived"))
    record_property("healed", f"{recovery:.2f} s after the port opened")
    record_property("lateness", f"p50 {late[WAITING_RUNS // 2]:.3f} s, worst {late[-1]:.3f} s")
    assert len(set(expected)) == len(staged) == WAITING_RUNS
    assert waited
    assert_each_once(target.calls("outlived"), runs, WAITING_RUNS)
