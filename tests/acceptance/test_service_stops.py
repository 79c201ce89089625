"""A stop of every instance of one service, and the network connections of the services."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from tests.acceptance.faults import assert_each_once, put_spread, start
from tests.acceptance.recording_target import Target
from tests.acceptance.stack import Stack, Tenant
from tests.rig.polling import until
from tests.rig.servers import Servers

from harebell.dev.plan import ServiceCounts, ServiceKind, name_of

pytestmark = [pytest.mark.broker, pytest.mark.postgres, pytest.mark.long]

HORIZON = {"HAREBELL_HORIZON": "3s"}  # short, so that runs are staged during the stop
STOPPED_RUNS, FAILING_RUNS, COMMANDS = 40, 10, 10
FIRST_DUE, LOAD_DURATION = 1.0, 8.0  # seconds
STOP_DURATION = 5.0  # seconds without the service, in which most runs are due
SINGLE_ATTEMPT = {"max_attempts": 1}
ESTABLISHED = "01"  # the state of a connection in /proc/net/tcp


@pytest.fixture(scope="module")
def stack(servers: Servers, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """Yield a stack with one instance of each service."""
    with Stack.open(servers, tmp_path_factory.mktemp("stops")) as opened:
        opened.start(ServiceCounts(), **HORIZON)
        yield opened


@pytest.mark.requirement("S58")
@pytest.mark.parametrize("kind", [pytest.param(kind, id=str(kind)) for kind in ServiceKind])
async def test_stop_of_a_service_delays_its_work_and_loses_nothing(
    kind: ServiceKind, stack: Stack, target: Target
) -> None:
    """Put runs, runs that become dead letters, and commands while the only instance is stopped."""
    async with stack.tenant(f"stopped-{kind}".replace("_", "-")) as tenant:
        hook, broken = target.http(f"{kind}"), target.http(f"{kind}-broken", fail=1)
        await put_spread(tenant, hook, STOPPED_RUNS, first=FIRST_DUE, over=LOAD_DURATION)
        await put_spread(
            tenant,
            broken,
            FAILING_RUNS,
            first=FIRST_DUE,
            over=LOAD_DURATION,
            prefix="broken",
            retry=SINGLE_ATTEMPT,
        )
        await asyncio.to_thread(stack.stop, name_of(kind, 1))
        commands = asyncio.create_task(
            put_spread(tenant, hook, COMMANDS, first=1, over=1, prefix="command")
        )
        await asyncio.sleep(STOP_DURATION)
        done_during_stop = await progress(tenant, target, kind, commands)
        await start(stack, kind, 1, **HORIZON)

        expected = STOPPED_RUNS + len(set(await commands))
        runs = await tenant.until_runs(expected, "succeeded")
        dead = await tenant.until_runs(FAILING_RUNS, "dead")
        await until(lambda: has_dead_letters(tenant), what="the dead letters")

    assert not done_during_stop
    assert expected == STOPPED_RUNS + COMMANDS
    assert_each_once(target.calls(f"{kind}"), runs, expected)
    assert len(target.calls(f"{kind}-broken")) == len(dead) == FAILING_RUNS


async def progress(
    tenant: Tenant, target: Target, kind: ServiceKind, commands: "asyncio.Task[list[str]]"
) -> bool:
    """Return whether the work of the stopped service has happened."""
    match kind:
        case ServiceKind.INTAKE:
            return commands.done()
        case ServiceKind.TICKER:
            return commands.done() or len(await tenant.runs()) >= STOPPED_RUNS
        case ServiceKind.DISPATCHER | ServiceKind.EXECUTOR:
            return len(target.calls(f"{kind}")) >= STOPPED_RUNS // 2
        case ServiceKind.DLQ_INSPECTOR:
            return bool(
                await tenant.ledger.fetchval(
                    "SELECT count(*) >= $2 FROM dead_letters WHERE tenant = $1",
                    tenant.name,
                    FAILING_RUNS // 2,
                )
            )


async def has_dead_letters(tenant: Tenant) -> bool:
    found = {each.run_id async for each in tenant.harebell.dead_letters()}
    return len(found) == FAILING_RUNS


@pytest.mark.requirement("S58")
async def test_services_connect_only_to_the_broker_the_database_and_targets(
    stack: Stack, target: Target
) -> None:
    pids = {
        name: process.pid
        for kind, number in ServiceCounts().members()
        if (process := stack.services.process(name := name_of(kind, number))) is not None
    }
    async with stack.tenant("connections") as tenant:
        await put_spread(tenant, target.http("connections", sleep=1), 5, first=1, over=1)
        await tenant.until_runs(5, "running")
        peers = {name: peer_ports(pid) for name, pid in pids.items()}
        await tenant.until_runs(5, "succeeded")

    broker, database = (urlsplit(url).port for url in (stack.amqp_url, stack.database_url))
    assert len(pids) == len(ServiceKind)
    for name, ports in peers.items():
        allowed = {broker, database} | ({target.port} if name == "executor-1" else set())
        assert {broker, database} <= ports <= allowed, name


def peer_ports(pid: int) -> set[int]:
    """Return the remote ports of the connections that the process has opened.

    A connection to a port on which the process listens belongs to its caller.
    """
    sockets = set()
    for descriptor in Path(f"/proc/{pid}/fd").iterdir():
        try:
            sockets.add(str(descriptor.readlink()))
        except FileNotFoundError:  # closed since the listing
            continue
    rows = [
        line.split()
        for name in ("tcp", "tcp6")
        for line in Path(f"/proc/{pid}/net/{name}").read_text().splitlines()[1:]
    ]
    own = [row for row in rows if f"socket:[{row[9]}]" in sockets]
    listening = {port_of(row[1]) for row in own if row[3] == "0A"}
    return {
        port_of(row[2]) for row in own if row[3] == ESTABLISHED and port_of(row[1]) not in listening
    }


def port_of(address: str) -> int:
    return int(address.rpartition(":")[2], 16)
