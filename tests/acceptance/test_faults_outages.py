"""A kill of the broker and restarts of the database under load, on separate servers."""

import asyncio
import signal
import time
from collections.abc import Callable, Iterator

import pytest
from tests.acceptance.faults import assert_each_once, put_spread, until_called, until_ready
from tests.acceptance.recording_target import Target
from tests.acceptance.stack import Stack, now
from tests.rig.polling import until
from tests.rig.servers import Servers, private_servers

from harebell.dev.plan import ServiceCounts
from harebell.dev.servers import PrivateServers

pytestmark = [pytest.mark.broker, pytest.mark.postgres, pytest.mark.broker_version]

WAITING_RUNS = 500  # runs in the delay queues at the kill
READY_TIMEOUT = 15.0  # seconds from an open port until every service consumes again
BACKLOG_TIMEOUT = 30.0  # seconds from then until every run has ended
LOAD = 400
PAIRS = ServiceCounts(tickers=2, dispatchers=2, executors=2)


@pytest.fixture(scope="module")
def own_servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    private = private_servers(tmp_path_factory.mktemp("own-servers"))
    try:
        private.start()
        yield Servers(private.amqp_url, private.database_url, private)
    finally:
        private.discard()


@pytest.fixture(scope="module")
def stack(own_servers: Servers, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    with Stack.open(own_servers, tmp_path_factory.mktemp("outages")) as opened:
        opened.start(PAIRS)
        yield opened


def servers_of(stack: Stack) -> PrivateServers:
    assert stack.servers.private is not None
    return stack.servers.private


@pytest.mark.long
@pytest.mark.requirement("S03", "S58", "S62", "S102", "ASK-5")
async def test_runs_in_delay_queues_run_once_when_the_broker_is_killed(
    stack: Stack, target: Target, record_property: Callable[[str, object], None]
) -> None:
    broker = servers_of(stack).broker
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


@pytest.mark.long
@pytest.mark.requirement("S76", "S91")
@pytest.mark.parametrize("mode", ["fast", "immediate"])
async def test_runs_execute_once_when_the_database_restarts_under_load(
    mode: str, stack: Stack, target: Target, record_property: Callable[[str, object], None]
) -> None:
    path = f"restarted-{mode}"
    async with stack.tenant(path) as tenant:
        hook = target.http(path, sleep=0.1)
        expected = await put_spread(tenant, hook, LOAD, first=1, over=8)
        await until_called(target, path, LOAD // 4)

    stopped_at = now()
    await asyncio.to_thread(restart_database, servers_of(stack), mode)
    returned_at = now()
    await until_ready(stack, PAIRS, within=READY_TIMEOUT)
    async with stack.tenant(path) as tenant:
        runs = await tenant.until_runs(LOAD, "succeeded", within=10 + BACKLOG_TIMEOUT)

    late = sorted(call.late for call in target.calls(path))
    outage = (returned_at - stopped_at).total_seconds()
    done = max(call.started_at for call in target.calls(path)) - returned_at
    record_property(
        "away", f"{outage:.2f} s; the last run began {done.total_seconds():.2f} s later"
    )
    record_property("lateness", f"p50 {late[LOAD // 2]:.3f} s, worst {late[-1]:.3f} s")
    assert len(set(expected)) == LOAD
    assert_each_once(target.calls(path), runs, LOAD)


def restart_database(servers: PrivateServers, mode: str) -> None:
    """Restart the database. `fast` ends the sessions first, and `immediate` is a crash."""
    database = servers.database
    if mode == "immediate":
        (daemon,) = database.daemons
        process = daemon.process
        assert process is not None
        process.send(signal.SIGQUIT)
        while process.is_running:
            time.sleep(0.02)
    database.stop()
    database.start()
