"""A slow target and a large backlog: no service uses much memory, and other runs are on time."""

import asyncio
from collections.abc import Callable
from statistics import median

import pytest
from tests.acceptance.faults import count_of, until_called
from tests.acceptance.recording_target import Target
from tests.acceptance.schedule_load import Process
from tests.acceptance.stack import Stack, Tenant, time_in
from tests.rig.polling import WAIT_TIMEOUT

from harebell.dev.plan import ServiceCounts, name_of

pytestmark = [pytest.mark.broker, pytest.mark.postgres, pytest.mark.long]

COUNTS = ServiceCounts()
BACKLOG = 3_000  # runs with one due time
PAYLOAD = (
    "x" * 16 * 1024
)  # of each run: 48 MiB of tickets in total, and several times as much in memory
BATCH_SIZE = 50  # schedules in one message
SLOTS = {"HAREBELL_SLOTS_NORMAL": "4"}  # the backlog takes a quarter of an hour
QUICK = 20  # runs of another target
MAX_GROWTH = 160 * 1024 * 1024  # bytes
MAX_CLAIMED = 1_000  # runs: 30 batches, the requeued tickets of the slow target and a margin
MAX_LATENESS = 5.0  # seconds

Record = Callable[[str, object], None]


def memory(stack: Stack) -> dict[str, int]:
    """Return the bytes in RAM of each service."""
    found = {}
    for member in COUNTS.members():
        process = stack.services.process(name_of(*member))
        assert process is not None
        found[name_of(*member)] = Process.of(process.pid).memory
    return found


async def put_backlog(tenant: Tenant, target: Target, due: dict[str, str]) -> None:
    hook = target.http("slow", sleep=1)
    hook["http"]["json"] = {"filling": PAYLOAD}
    for first in range(0, BACKLOG, BATCH_SIZE):
        responses = await tenant.harebell.put_many(
            [
                {"key": f"slow-{number}", "when": due, "target": hook}
                for number in range(first, first + BATCH_SIZE)
            ]
        )
        assert all(response.ok for response in responses)


@pytest.mark.measures
async def test_backlog_of_a_slow_target_uses_little_memory_and_delays_no_other_run(
    own_stack: Stack, target: Target, record_property: Record
) -> None:
    stack = own_stack
    members = await asyncio.to_thread(lambda: stack.start(COUNTS, **SLOTS))
    (executor,) = (member for member in members if member.name == "executor-1")
    async with stack.tenant("slow") as tenant:
        before = memory(stack)
        await put_backlog(tenant, target, {"at": time_in(-1).isoformat()})
        await until_called(target, "slow", 4, within=2 * WAIT_TIMEOUT)
        due = time_in(3)
        quick = [
            {"key": f"quick-{n}", "when": {"at": due.isoformat()}, "target": hook, "priority": 9}
            for n, hook in enumerate([target.http("quick")] * QUICK)
        ]
        assert all(response.ok for response in await tenant.harebell.put_many(quick))
        calls = await until_called(target, "quick", QUICK, within=2 * WAIT_TIMEOUT)
        await until_called(target, "slow", 30, within=2 * WAIT_TIMEOUT)

        growth = {name: now - before[name] for name, now in memory(stack).items()}
        record_property("grown", {name: f"{by / 2**20:.0f} MiB" for name, by in growth.items()})
        record_property("late", f"{max(call.late for call in calls):.2f} s")
        claimed = await count_of(executor, "harebell_claimed_runs")
        assert max(growth.values()) < MAX_GROWTH
        assert claimed < MAX_CLAIMED
        assert median(call.late for call in calls) < MAX_LATENESS
        assert (
            len(await tenant.runs("staged")) > BACKLOG / 2
        )  # the backlog existed during the whole test
