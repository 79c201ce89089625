"""Hosts with wrong clocks: runs follow the clock of the database and execute once."""

import asyncio
import json
import time
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from typing import Any

import pytest
from tests.acceptance.amqp_client import AmqpClient
from tests.acceptance.faults import assert_each_once, put_spread
from tests.acceptance.host_clock import HostClock
from tests.acceptance.recording_target import Call, Target
from tests.acceptance.stack import Stack, Tenant, now
from tests.rig.polling import WAIT_TIMEOUT, until
from tests.rig.servers import Servers

from harebell.dev.plan import ServiceKind, name_of
from harebell.dev.processes import is_ready

pytestmark = [pytest.mark.broker, pytest.mark.postgres]

RUNS = 200
SPREAD = 15.0  # seconds from the first run to the last
FIRST_DUE = 3.0  # seconds
SKEW = 60.0  # seconds
MAX_LATENESS = 2.0  # seconds, for 99 of 100 starts
MAX_EVENT_OFFSET = 10.0  # seconds between the time in an event and its arrival
JUMPS = (3600.0, -3600.0, 120.0, -120.0)  # seconds from the true time, one after another
JUMP_INTERVAL = SPREAD / len(JUMPS)

# One clock is ahead and one is behind, for each kind with two instances.
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
    """Yield a stack whose services each run with a separate wrong clock."""
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


def measure_clock_offset(stack: Stack, name: str) -> float:
    """Return the seconds by which a service was ahead at its last log line."""
    log = stack.services.root / "logs" / f"{name}.log"
    written = log.stat().st_mtime
    last = json.loads(stack.log_of(name).splitlines()[-1])
    return datetime.fromisoformat(last["timestamp"]).timestamp() - written


async def measure_event_offsets(events: "asyncio.Queue[dict[str, Any]]", count: int) -> list[float]:
    """Return the differences between the times in events and their arrival, in seconds."""
    event_offsets = []
    async with asyncio.timeout(WAIT_TIMEOUT + SPREAD):
        for _ in range(count):
            event = await events.get()
            event_offsets.append(
                abs((now() - datetime.fromisoformat(event["time"])).total_seconds())
            )
    return event_offsets


async def jump_clocks(clocks: Clocks) -> None:
    """Set each clock to another time repeatedly."""
    for step in range(len(JUMPS)):
        for position, clock in enumerate(clocks.values()):
            clock.set(JUMPS[(step + position) % len(JUMPS)])
        await asyncio.sleep(JUMP_INTERVAL)


def assert_punctual(calls: Iterable[Call]) -> float:
    """Assert the bound of the 99th percentile of the lateness and return the percentile."""
    late = sorted(call.late for call in calls)
    p99 = late[len(late) * 99 // 100]
    assert p99 < MAX_LATENESS
    return p99


async def run_load(tenant: Tenant, target: Target, path: str) -> list[float]:
    """Execute the load and return the offsets of the times in its events, in seconds."""
    async with AmqpClient.open(tenant.stack.amqp_url, tenant.name) as amqp:
        events = await amqp.events("run.succeeded")
        offsets_task = asyncio.create_task(measure_event_offsets(events, RUNS))
        expected = await put_spread(tenant, target.http(path), RUNS, first=FIRST_DUE, over=SPREAD)
        runs = await tenant.until_runs(RUNS, "succeeded", within=WAIT_TIMEOUT + SPREAD)
        event_offsets = await offsets_task
    assert len(set(expected)) == RUNS
    assert_each_once(target.calls(path), runs, RUNS)
    return event_offsets


@pytest.mark.measures
@pytest.mark.long
@pytest.mark.requirement("S56")
async def test_no_run_starts_early_or_twice_when_clocks_differ_by_two_minutes(
    stack: Stack, target: Target, record_property: Callable[[str, object], None]
) -> None:
    async with stack.tenant("two-minutes-apart") as tenant:
        event_offsets = await run_load(tenant, target, "skewed")

    p99 = assert_punctual(target.calls("skewed"))
    record_property("lateness", f"p99 {p99 * 1e3:.1f} ms")
    assert max(event_offsets) < MAX_EVENT_OFFSET
    clock_offsets = {member: measure_clock_offset(stack, name_of(*member)) for member in SKEWS}
    assert clock_offsets == pytest.approx(SKEWS, abs=SKEW / 2), (
        "The clocks of the hosts were not wrong."
    )


@pytest.mark.measures
@pytest.mark.long
@pytest.mark.requirement("S56")
async def test_no_run_moves_when_clocks_change_by_minutes_or_hours(
    stack: Stack, clocks: Clocks, target: Target, record_property: Callable[[str, object], None]
) -> None:
    started_at = time.monotonic()
    jumping = asyncio.create_task(jump_clocks(clocks))
    async with stack.tenant("set-by-hours") as tenant:
        event_offsets = await run_load(tenant, target, "set")
    await jumping

    p99 = assert_punctual(target.calls("set"))
    record_property("lateness", f"p99 {p99 * 1e3:.1f} ms in {time.monotonic() - started_at:.0f} s")
    assert max(event_offsets) < MAX_EVENT_OFFSET
    assert all(stack.services.process(name_of(*member)) for member in SKEWS), "A service has ended."
