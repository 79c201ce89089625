"""Scenario: a durable queue of jobs while every service and the broker are killed in turn."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any, Final
from uuid import UUID

import pytest
from tests.acceptance.faults import start, until_dead, until_ready
from tests.acceptance.recording_target import Target
from tests.acceptance.stack import Stack, time_in
from tests.rig.servers import Servers, private_servers

from harebell.client import Client
from harebell.contract.errors import Transient
from harebell.dev.plan import ServiceCounts, name_of

pytestmark = [pytest.mark.broker, pytest.mark.postgres, pytest.mark.long]

COUNTS: Final = ServiceCounts(tickers=2, dispatchers=2, executors=2)
JOBS: Final = 1_200
BATCH: Final = 20  # jobs in one message
SPREAD: Final = 60.0  # seconds between the first and the last due time
FIRST: Final = 10.0  # seconds until the first due time
MAX_TRIES: Final = 60  # of one message, one second apart
ENDED_WITHIN: Final = 150.0  # seconds after the last submit
LEASES: Final = {"HAREBELL_LEASE": "6s", "HAREBELL_LEASE_CRITICAL": "4s"}
MAX_ATTEMPTS: Final = 12  # more than the number of kills that one run can meet


@pytest.fixture
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """Yield a stack on servers of its own, which the test may kill."""
    private = private_servers(tmp_path_factory.mktemp("killed-servers"))
    try:
        private.start()
        servers = Servers(private.amqp_url, private.database_url, private)
        with Stack.open(servers, tmp_path_factory.mktemp("killed")) as opened:
            yield opened
    finally:
        private.discard()


@asynccontextmanager
async def submitting(
    stack: Stack, tenant: str, jobs: list[dict[str, Any]]
) -> AsyncIterator["asyncio.Task[set[UUID]]"]:
    """Submit the jobs in a task, whose result contains the ids of the acknowledged jobs."""
    task = asyncio.create_task(submit(stack, tenant, jobs))
    try:
        yield task
    finally:
        task.cancel()


async def submit(stack: Stack, tenant: str, jobs: list[dict[str, Any]]) -> set[UUID]:
    """Submit the jobs in small messages, and repeat a message until it is acknowledged."""
    acknowledged: set[UUID] = set()
    for first in range(0, len(jobs), BATCH):
        for _ in range(MAX_TRIES):
            try:
                async with Client.connect(stack.amqp_url, tenant=tenant, timeout=10) as client:
                    responses = await client.put_many(jobs[first : first + BATCH])
            except Transient:
                await asyncio.sleep(1)
            else:
                acknowledged |= {response.id for response in responses if response.ok}
                break
    return acknowledged


async def kill_everything(stack: Stack) -> None:
    """Kill and start each service instance in turn, and the broker in the middle."""
    members = COUNTS.members()
    for position, (kind, number) in enumerate(members):
        if position == len(members) // 2:
            assert stack.servers.private is not None
            broker = stack.servers.private.broker
            await asyncio.to_thread(broker.kill)
            await asyncio.to_thread(broker.start)
            await until_ready(stack, COUNTS, within=60)
        name = name_of(kind, number)
        stack.kill(name)
        await until_dead(stack, name)
        await start(stack, kind, number, **LEASES)


@pytest.mark.requirement("S25", "S35", "S58", "S62", "S76", "S78", "S79")
async def test_every_acknowledged_job_succeeds_once_while_services_and_broker_are_killed(
    stack: Stack,
    target: Target,
    record_property: Callable[[str, object], None],
) -> None:
    begins = time_in(FIRST)
    jobs: list[dict[str, Any]] = [
        {
            "key": f"job-{number}",
            "request_id": f"submit-{number}",
            "when": {"at": (begins + timedelta(seconds=number * SPREAD / JOBS)).isoformat()},
            "target": target.http("jobs", sleep=0.05),
            "retry": {
                "max_attempts": MAX_ATTEMPTS,
                "backoff": {"base": "500ms", "factor": 1, "jitter": "none"},
            },
        }
        for number in range(JOBS)
    ]
    await asyncio.to_thread(stack.start, COUNTS, **LEASES)
    async with submitting(stack, "jobs", jobs) as submits:
        await kill_everything(stack)
        acknowledged = await asyncio.wait_for(submits, timeout=ENDED_WITHIN)
    async with stack.tenant("jobs") as tenant:
        runs = await tenant.until_runs(JOBS, "succeeded", within=ENDED_WITHIN)
        all_runs = await tenant.runs()
        attempts = await tenant.ledger.fetchval("SELECT count(*) FROM attempts")
        letters = [each async for each in tenant.harebell.dead_letters()]

    calls = target.calls("jobs")
    effects = Counter(call.idempotency_key for call in calls if call.ok)
    repeated = sum(count - 1 for count in effects.values())
    record_property("calls", f"{len(calls)} calls and {attempts} attempts of {JOBS} jobs")
    record_property("repeated effects", f"{repeated}, which the idempotency key reveals")
    assert len(acknowledged) == JOBS
    assert {run["schedule_id"] for run in runs} == acknowledged
    assert len(all_runs) == JOBS
    assert letters == []
    assert set(effects) == {call.run_id for call in calls}
    assert len(effects) == JOBS
    assert all(call.idempotency_key == call.run_id for call in calls)
    assert min(call.late for call in calls) >= 0
    for run_id, count in effects.items():
        if count > 1:
            tokens = [call.token for call in calls if call.run_id == run_id]
            assert len(set(tokens)) == len(tokens), "two calls carried one fencing token"
