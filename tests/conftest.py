"""Fixtures for more than one suite: servers for the session, and empty servers for each test."""

import gc
import os
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import structlog
from hypothesis import HealthCheck, settings
from tests.rig import file_order
from tests.rig.servers import Servers, server_directory

from harebell.runtime.tzdata import use_newest_tzdata

SERVER_MARKERS = ("broker", "postgres")
LONG_MARKERS = ("chaos", "deploy", "long")
LONG_TIMEOUT = 1800.0  # seconds of one test with a marker of `LONG_MARKERS`
# `make test` imports only these folders for the tests that need servers.
SERVER_FOLDERS = ("acceptance", "contract", "integration")

# Without bytecode, pytest rewrites 500 files again and each process of a stack compiles every
# module, which is three quarters of the CPU time of its start.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# The collection creates 7,000 tests without garbage. Fewer collections save 10 % of its CPU time.
gc.set_threshold(50_000, 20, 100)

# No result of a property test may depend on the speed or the load of the machine.
settings.register_profile("harebell", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("harebell")

# As in the services and the command. The data of the system may be years old.
use_newest_tzdata(os.environ)

# The default format shows the variables of each function, which can take 4 s for one exception.
structlog.configure(
    processors=[
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.dev.set_exc_info,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.dev.ConsoleRenderer(
            colors=False, exception_formatter=structlog.dev.plain_traceback
        ),
    ]
)


@pytest.hookimpl(tryfirst=True)  # pytest evaluates `-m` in this hook and must find the marker
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark each test that starts a server itself or through a fixture."""
    for item in items:
        if any(map(item.get_closest_marker, LONG_MARKERS)):
            item.add_marker(pytest.mark.timeout(LONG_TIMEOUT))
        fixtures = getattr(item, "fixturenames", ())
        if "servers" in fixtures or any(map(item.get_closest_marker, SERVER_MARKERS)):
            item.add_marker("server")
            check_folder(item)


@pytest.hookimpl(trylast=True, specname="pytest_collection_modifyitems")  # after `-m`
def pytest_order_files(items: list[pytest.Item]) -> None:
    """Order the files with servers by their expected duration, the longest file first."""
    own = [item for item in items if item.nodeid.startswith(file_order.FOLDERS)]
    measured = file_order.read_measured()
    order = file_order.longest_first([item.nodeid for item in own], measured)
    others = [item for item in items if not item.nodeid.startswith(file_order.FOLDERS)]
    items[:] = [*others, *(own[position] for position in order)]


def check_folder(item: pytest.Item) -> None:
    """Raise an error for a test that `make test` would leave out."""
    folder = item.path.relative_to(Path(__file__).parent).parts[0]
    runs_elsewhere = any(map(item.get_closest_marker, ("chaos", "long")))
    if folder not in SERVER_FOLDERS and not runs_elsewhere:
        folders = ", ".join(f"tests/{each}" for each in SERVER_FOLDERS)
        raise pytest.UsageError(
            f"The test {item.nodeid} needs a server, so it must be in one of {folders}."
        )


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
