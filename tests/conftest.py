"""Fixtures for more than one suite: servers for the session, and empty servers for each test."""

from collections.abc import AsyncIterator, Iterator

import pytest
from tests.rig.servers import Servers, server_directory

SERVER_MARKERS = ("broker", "postgres")


@pytest.hookimpl(tryfirst=True)  # pytest evaluates `-m` in this hook and must find the marker
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark each test that starts a server itself or through a fixture."""
    for item in items:
        fixtures = getattr(item, "fixturenames", ())
        if "servers" in fixtures or any(map(item.get_closest_marker, SERVER_MARKERS)):
            item.add_marker("server")


@pytest.fixture(scope="session")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    with (
        server_directory(tmp_path_factory.mktemp("servers")) as root,
        Servers.open(root) as opened,
    ):
        yield opened


@pytest.fixture
def amqp_url(servers: Servers) -> Iterator[str]:
    """Yield the URL of an empty virtual host."""
    with servers.virtual_host() as url:
        yield url


@pytest.fixture
async def database_url(servers: Servers) -> AsyncIterator[str]:
    """Yield the URL of a fresh, migrated database with its owner as the user.

    The function `tests.rig.servers.as_role` returns the URL with the role of a service.
    """
    url = await servers.make_database()
    yield url
    await servers.drop_database(url)
