"""Fixtures that more than one suite needs: servers for the session, a clean place for each test."""

from collections.abc import AsyncIterator, Iterator

import pytest
from tests.rig.servers import Servers


@pytest.fixture(scope="session")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    with Servers.open(tmp_path_factory.mktemp("servers")) as opened:
        yield opened


@pytest.fixture
def amqp_url(servers: Servers) -> Iterator[str]:
    """An empty virtual host; nothing is declared in it."""
    with servers.virtual_host() as url:
        yield url


@pytest.fixture
async def database_url(servers: Servers) -> AsyncIterator[str]:
    """A fresh, migrated database, as its owner; `tests.servers.as_role` logs in as a service."""
    url = await servers.make_database()
    yield url
    await servers.drop_database(url)
