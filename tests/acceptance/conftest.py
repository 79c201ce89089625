"""One running stack for the whole suite; every test is a tenant of its own."""

import re
from collections.abc import AsyncIterator, Iterator

import pytest
from tests.acceptance.record import Target
from tests.acceptance.stack import Stack, Tenant
from tests.servers import Servers

from harebell.dev.plan import Counts

PAIRS = Counts(tickers=2, dispatchers=2, executors=2)


@pytest.fixture(scope="session")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    with Target.open(tmp_path_factory.mktemp("target") / "calls.jsonl") as opened:
        yield opened


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


@pytest.fixture
async def tenant(running_stack: Stack, request: pytest.FixtureRequest) -> AsyncIterator[Tenant]:
    name = re.sub("[^a-z0-9]+", "-", request.node.name.removeprefix("test_").lower())[:60]
    async with running_stack.tenant(name) as opened:
        yield opened
