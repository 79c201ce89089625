"""Hosts that disagree about the time of day: runs keep to the database's, and happen once."""

import asyncio
import json
import time
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from typing import Any

import pytest
from tests.acceptance.faults import assert_each_once, put_spread
from tests.acceptance.recording_target import Call, Target
from tests.acceptance.host_clock import HostClock
from tests.acceptance.stack import WAIT_TIMEOUT, Stack, Tenant, now, until
from tests.acceptance.amqp_client import AmqpClient
from tests.rig.servers import Servers

from harebell.dev.plan import ServiceKind, name_of
from harebell.dev.processes import is_ready

pytestmark = [pytest.mark.broker, pytest.mark.postgres]

RUNS = 200
OVER = 15.0  # seconds from the first of them to the last
AHEAD = 3.0  # seconds from now to the first
SKEW = 60.0  # seconds
PUNCTUAL = 2.0  # seconds; of 99 in 100 starts
HONEST = 10.0  # seconds that a published time may differ from when it is heard
JUMPS = (3600.0, -3600.0, 120.0, -120.0)  # seconds from the truth, one after another
BETWEEN = OVER / len(JUMPS)

# Of every kind that there may be two of, one is ahead and one behind.
SKEWS = {
    (ServiceKind.INTAKE, 1): -SKEW,
    (ServiceKind.TICKER, 1): SKEW,
    (ServiceKind.TICKER, 2): -SKEW,
    (ServiceKind.DISPATCHER, 1): -SKEW,
    (ServiceKind.DISPATCHER, 2): SKEW,
    (ServiceKind.EXECUTOR, 1): SKEW,
    (ServiceKind.EXECUTOR, 2): -SKEW,
    (ServiceKind.DLQ_INSPECTOR, 1): SKEW,
}

Clocks = dict[tuple[ServiceKind, int], HostClock]


@pytest.fixture(scope="module")
def clocks(tmp_path_factory: pytest.TempPathFactory) -> Clocks:
    root = tmp_path_factory.mktemp("clocks")
    return {(kind, number): HostClock(root / name_of(kind, number)) for kind, number in SKEWS}


@pytest.fixture(scope="module")
def stack(
    servers: Servers, clocks: Clocks, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Stack]:
    """Every service on a host of its own, whose clock is wrong from the start."""
    with Stack.open(servers, tmp_path_factory.mktemp("skewed")) as opened:
        for (kind, number), clock in clocks.items():
            clock.set(SKEWS[kind, number])
            opened.start_one(kind, number, ready=False, **clock.environment)
        asyncio.run(until_ready(opened))
        yield opened


async def until_ready(stack: Stack) -> None:
    ports = [stack.services.plan(*member).port for member in SKEWS]

    async def all_ready() -> bool:
        return all([await asyncio.to_thread(is_ready, port) for port in ports])

    await until(all_ready, what="every service's readiness")


def believed_offset(stack: Stack, name: str) -> float:
    """Seconds that a service's host was ahead of the truth when it last wrote to its log."""
    log = stack.services.root / "logs" / f"{name}.log"
    written = log.stat().st_mtime
    last = json.loads(stack.log_of(name).splitlines()[-1])
    return datetime.fromisoformat(last["timestamp"]).timestamp() - written


async def times_told(events: "asyncio.Queue[dict[str, Any]]", count: int) -> list[float]:
    """Seconds by which the times of events differ from when they are heard."""
    off = []
    async with asyncio.timeout(WAIT_TIMEOUT + OVER):
        for _ in range(count):
            event = await events.get()
            off.append(abs((now() - datetime.fromisoformat(event["time"])).total_seconds()))
    return off


async def jump(clocks: Clocks) -> None:
    """Every host in its turn, each to another time, again and again."""
    for step in range(len(JUMPS)):
        for place, clock in enumerate(clocks.values()):
            clock.set(JUMPS[(step + place) % len(JUMPS)])
        await asyncio.sleep(BETWEEN)


def assert_punctual(calls: Iterable[Call]) -> float:
    """Seconds within which 99 of 100 began."""
    late = sorted(call.late for call in calls)
    p99 = late[len(late) * 99 // 100]
    assert p99 < PUNCTUAL
    return p99


async def run_some(tenant: Tenant, target: Target, path: str) -> list[float]:
    """How far the times told of them were off, in seconds."""
    async with AmqpClient.open(tenant.stack.amqp_url, tenant.name) as amqp:
        events = await amqp.events("run.succeeded")
        hearing = asyncio.create_task(times_told(events, RUNS))
        expected = await put_spread(tenant, target.http(path), RUNS, first=AHEAD, over=OVER)
        runs = await tenant.until_runs(RUNS, "succeeded", within=WAIT_TIMEOUT + OVER)
        off = await hearing
    assert len(set(expected)) == RUNS
    assert_each_once(target.calls(path), runs, RUNS)
    return off


@pytest.mark.requirement("S56")
async def test_hosts_two_minutes_apart_start_nothing_early_and_nothing_twice(
    stack: Stack, target: Target, record_property: Callable[[str, object], None]
) -> None:
    async with stack.tenant("two-minutes-apart") as tenant:
        off = await run_some(tenant, target, "skewed")

    p99 = assert_punctual(target.calls("skewed"))
    record_property("lateness", f"p99 {p99 * 1e3:.1f} ms")
    assert max(off) < HONEST
    believed = {member: believed_offset(stack, name_of(*member)) for member in SKEWS}
    assert believed == pytest.approx(SKEWS, abs=SKEW / 2), "the hosts' clocks were not wrong"


@pytest.mark.requirement("S56")
async def test_clocks_that_are_set_by_minutes_and_hours_move_no_run(
    stack: Stack, clocks: Clocks, target: Target, record_property: Callable[[str, object], None]
) -> None:
    began = time.monotonic()
    jumping = asyncio.create_task(jump(clocks))
    async with stack.tenant("set-by-hours") as tenant:
        off = await run_some(tenant, target, "set")
    await jumping

    p99 = assert_punctual(target.calls("set"))
    record_property("lateness", f"p99 {p99 * 1e3:.1f} ms in {time.monotonic() - began:.0f} s")
    assert max(off) < HONEST
    assert all(stack.services.process(name_of(*member)) for member in SKEWS), "a service has ended"
