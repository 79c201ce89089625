"""Fixtures of the acceptance tests: stacks, targets, and a separate tenant for each test."""

import asyncio
import re
from collections.abc import AsyncIterator, Generator, Iterator
from dataclasses import replace
from zlib import crc32

import pytest
from tests.acceptance.cluster_stack import PAIRS, ClusterStack
from tests.acceptance.cpu_priority import raised_priority
from tests.acceptance.faults import Pool
from tests.acceptance.floods import MAX_ANSWER, MAX_SLOW_ANSWER
from tests.acceptance.recording_target import Target
from tests.acceptance.schedule_load import ScheduleLoad
from tests.acceptance.stack import Stack, Tenant
from tests.acceptance.stack_pool import StackPool
from tests.rig.servers import Servers

from harebell.dev.plan import ServiceCounts

LAST_LINES = 15  # of each service's log that a failed test's report shows


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add the last log lines of each service and the queues of a cluster to a failure report."""
    report = yield
    if report.when == "call" and report.failed:
        used = getattr(item, "funcargs", {}).values()
        stacks = {id(stack): stack for stack in map(_stack, used) if stack is not None}
        for stack in stacks.values():
            report.sections += stack.log_tails(LAST_LINES)
        for clustered in used:
            if isinstance(clustered, ClusterStack):
                report.sections.append(("queues", clustered.queue_report()))
    return report


def _stack(fixture: object) -> Stack | None:
    found = fixture if isinstance(fixture, Stack) else getattr(fixture, "stack", None)
    return found if isinstance(found, Stack) else None


@pytest.fixture(scope="session")
def whole_target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    with Target.open(tmp_path_factory.mktemp("target") / "calls.jsonl") as opened:
        yield opened


@pytest.fixture
def target(whole_target: Target, name_of_test: str) -> Target:
    """Return the target with a separate folder of paths for this test."""
    return replace(whole_target, folder=f"{name_of_test}/")


@pytest.fixture(scope="module")
def longest_answer(servers: Servers) -> Iterator[float]:
    """Yield the longest permitted time of an answer during another tenant's flood [s]."""
    with raised_priority(servers) as is_raised:
        yield MAX_ANSWER if is_raised else MAX_SLOW_ANSWER


@pytest.fixture(scope="session")
def stacks(servers: Servers, tmp_path_factory: pytest.TempPathFactory) -> Iterator[StackPool]:
    opened = StackPool(servers, tmp_path_factory.mktemp("stacks"))
    yield opened
    opened.close()


@pytest.fixture
def running_stack(stacks: StackPool) -> Stack:
    """Return a shared stack with two instances of each service that can have two."""
    return stacks.take(PAIRS)


@pytest.fixture
def own_stack(servers: Servers, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """Yield a stack for one test, without a running service."""
    with Stack.open(servers, tmp_path_factory.mktemp("own")) as stack:
        yield stack


@pytest.fixture
def faulty_stack(stacks: StackPool) -> Stack:
    """Return a shared stack without executors, which each test starts in a separate pool."""
    return stacks.take(ServiceCounts(executors=0))


@pytest.fixture(scope="session")
def schedule_load(
    servers: Servers, whole_target: Target, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ScheduleLoad]:
    """Yield the load of a million schedules on a stack with one instance of each service."""
    with Stack.open(servers, tmp_path_factory.mktemp("schedule-load")) as stack:
        opened = ScheduleLoad(stack, replace(whole_target, folder="schedule-load/"))
        asyncio.run(opened.create())
        yield opened


@pytest.fixture
async def tenant(running_stack: Stack, name_of_test: str) -> AsyncIterator[Tenant]:
    async with running_stack.tenant(name_of_test) as opened:
        yield opened


@pytest.fixture
async def faulty_tenant(faulty_stack: Stack, name_of_test: str) -> AsyncIterator[Tenant]:
    async with faulty_stack.tenant(name_of_test) as opened:
        yield opened


@pytest.fixture
def pool(faulty_stack: Stack, name_of_test: str) -> Iterator[Pool]:
    opened = Pool(name_of_test[:40].strip("-"), faulty_stack)
    try:
        yield opened
    finally:
        opened.close()


@pytest.fixture
def name_of_test(request: pytest.FixtureRequest) -> str:
    """Return a unique name for the test that is valid as a tenant."""
    name = request.node.name
    words = re.sub("[^a-z0-9]+", "-", name.removeprefix("test_").lower())
    return f"{crc32(name.encode()):08x}-{words}"[:60].strip("-")
