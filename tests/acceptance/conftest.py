"""One running stack for the whole suite; every test is a tenant of its own."""

import asyncio
import re
from collections.abc import AsyncIterator, Generator, Iterator
from dataclasses import replace
from zlib import crc32

import pytest
from tests.acceptance.clusters import PAIRS, Clustered
from tests.acceptance.faults import Pool
from tests.acceptance.record import Target
from tests.acceptance.schedule_load import Crowd
from tests.acceptance.stack import Stack, Tenant
from tests.rig.servers import Servers

from harebell.dev.plan import Counts

LAST_LINES = 15  # of each service's log that a failed test's report shows


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A failure shows what the services said last, and what waits in a cluster's queues."""
    report = yield
    if report.when == "call" and report.failed:
        used = getattr(item, "funcargs", {}).values()
        stacks = {id(stack): stack for stack in map(_stack, used) if stack is not None}
        for stack in stacks.values():
            report.sections += stack.last_said(LAST_LINES)
        for clustered in used:
            if isinstance(clustered, Clustered):
                report.sections.append(("queues", clustered.told_queues()))
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
    """This test's part of it."""
    return replace(whole_target, folder=f"{name_of_test}/")


@pytest.fixture(scope="session")
def running_stack(servers: Servers, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """Two of everything that there may be several of. Nobody kills anything in it."""
    with Stack.open(servers, tmp_path_factory.mktemp("stack")) as stack:
        stack.start(PAIRS)
        yield stack


@pytest.fixture
def own_stack(servers: Servers, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """Of one test, which may do what it wants to it; nothing runs in it yet."""
    with Stack.open(servers, tmp_path_factory.mktemp("own")) as stack:
        yield stack


@pytest.fixture(scope="session")
def faulty_stack(servers: Servers, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """One of each service but executors, which tests start in pools of their own.

    What a test kills in it, it starts again.
    """
    with Stack.open(servers, tmp_path_factory.mktemp("faulty")) as stack:
        stack.start(Counts(executors=0))
        yield stack


@pytest.fixture(scope="session")
def crowd(
    servers: Servers, whole_target: Target, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Crowd]:
    """One of each service, and a million schedules."""
    with Stack.open(servers, tmp_path_factory.mktemp("crowd")) as stack:
        crowd = Crowd(stack, replace(whole_target, folder="crowd/"))
        asyncio.run(crowd.gather())
        yield crowd


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
    """As a tenant may be called; no two are the same, even when they are cut."""
    name = request.node.name
    words = re.sub("[^a-z0-9]+", "-", name.removeprefix("test_").lower())
    return f"{crc32(name.encode()):08x}-{words}"[:60].strip("-")
