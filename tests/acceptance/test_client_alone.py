"""The distribution `harebell-client` in a separate environment, without heavy dependencies."""

import asyncio
import os
import subprocess
import sys
import venv
from pathlib import Path

import pytest
from tests.acceptance.recording_target import Target
from tests.acceptance.stack import Tenant

# The environment of these tests needs half a minute.
pytestmark = [pytest.mark.broker, pytest.mark.postgres, pytest.mark.long]

SCHEMAS = Path(__file__).parents[2] / "schemas"
HEAVY = {"sqlalchemy", "asyncpg", "alembic", "croniter", "aiohttp", "typer", "harebell"}
PUBLISH = """
import asyncio, sys
from harebell.client import Client

async def main(url, tenant, hook):
    async with Client.connect(url, tenant=tenant) as harebell:
        response = await harebell.put(
            {"key": "alone", "when": {"now": True}, "target": {"http": {"url": hook}}}
        )
        print(response.id)

asyncio.run(main(*sys.argv[1:]))
"""


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the Python of an environment that contains only `harebell-client`."""
    home = tmp_path_factory.mktemp("alone")
    venv.create(home, with_pip=True, symlinks=True)
    python = home / "bin" / "python"
    run(python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", str(SCHEMAS))
    return python


def run(python: Path, *arguments: str) -> str:
    """Run outside the checkout and return the output."""
    clean = {name: text for name, text in os.environ.items() if not name.startswith("PYTHON")}
    command = [str(python), *arguments]
    done = subprocess.run(  # noqa: S603  # the test builds the command
        command, cwd="/", env=clean, capture_output=True, text=True, timeout=240, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.requirement("S01")
async def test_client_without_services_publishes_a_schedule_that_runs(
    tenant: Tenant, target: Target, python: Path
) -> None:
    where = [tenant.stack.amqp_url, tenant.name, target.url("client-alone")]

    schedule_id = (await asyncio.to_thread(run, python, "-c", PUBLISH, *where)).strip()
    (row,) = await tenant.until_runs(1, "succeeded")

    assert str(row["schedule_id"]) == schedule_id
    assert [call.schedule_id for call in target.calls("client-alone")] == [schedule_id]


def test_client_distribution_installs_no_package_of_the_services(python: Path) -> None:
    listed = run(python, "-m", "pip", "list", "--format=freeze", "--disable-pip-version-check")
    installed = {line.partition("==")[0].lower() for line in listed.splitlines()}

    assert "harebell-client" in installed
    assert not installed & HEAVY
    assert len(installed) < 20
    absent = "import importlib.util as u; print(u.find_spec('sqlalchemy'), u.find_spec('asyncpg'))"
    assert run(python, "-c", absent).split() == ["None", "None"]


def test_client_distribution_contains_its_types(python: Path) -> None:
    find = "import harebell.client as c, pathlib; print(pathlib.Path(c.__file__).parent)"
    package = Path(run(python, "-c", find).strip())

    assert (package / "py.typed").exists()
    assert Path(sys.prefix) not in package.parents
