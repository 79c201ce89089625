"""Fixtures of more than one folder: virtual hosts that tests use one after the other."""

from collections.abc import AsyncIterator, Iterator

import pytest
from tests.rig.core_hosts import CoreHosts
from tests.rig.servers import Servers


@pytest.fixture(scope="session")
def core_hosts(servers: Servers) -> Iterator[CoreHosts]:
    with CoreHosts.open(servers) as opened:
        yield opened


@pytest.fixture
async def core_url(core_hosts: CoreHosts) -> AsyncIterator[str]:
    """Yield the URL of a virtual host with the topology of the services and without messages."""
    async with core_hosts.host() as url:
        yield url
