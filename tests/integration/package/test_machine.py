"""The Debian package on a machine with systemd: install, configure, run, upgrade, remove, purge."""

import asyncio
import json
import os
from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import aio_pika
import asyncpg
import pytest
from tests.acceptance.production import Production
from tests.architecture.documents import page
from tests.rig.debian_package import EARLIER, built_package, earlier_version
from tests.rig.polling import until
from tests.rig.servers import ROLE_PASSWORD, Servers, as_role
from tests.rig.systemd_machine import SystemdMachine, debian_tree
from tests.tools.page_commands import blocks_of

from harebell.contract import __version__
from harebell.storage.role_passwords import ROLES

pytestmark = [
    pytest.mark.deploy,
    pytest.mark.long,
    pytest.mark.broker,
    pytest.mark.postgres,
    pytest.mark.skipif(os.geteuid() != 0, reason="A container of systemd needs root."),
]

SERVICES: Final = ("intake", "ticker", "dispatcher", "dlq-inspector", "executor")
INSTANCES: Final = tuple(
    f"harebell-{each}@{'default' if each == 'executor' else '1'}.service" for each in SERVICES
)
CREDENTIALS: Final = "/etc/harebell/credentials"
PAGE: Final = page("systemd.md")
EXAMPLE_URL: Final = "amqp://harebell_intake:secret@broker.internal/"
ASSUME_YES: Final = 'APT::Get::Assume-Yes "true";\n'  # as a person answers
STARTED: Final = 120.0  # seconds, on a busy machine
ACME: Final = "acme"


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the package as `new.deb` and as an earlier version `old.deb`."""
    folder = tmp_path_factory.mktemp("packages")
    package = built_package(os.environ)
    (folder / "new.deb").write_bytes(package.read_bytes())
    earlier_version(package, folder).rename(folder / "old.deb")
    return folder


@pytest.fixture
def machine(packages: Path, tmp_path: Path) -> Iterator[SystemdMachine]:
    with SystemdMachine.boot(debian_tree(os.environ), tmp_path / "log", packages) as machine:
        yield machine


@pytest.fixture
def production(servers: Servers, tmp_path: Path) -> Iterator[Production]:
    with Production.open(servers, tmp_path, tenants=(ACME,), declares=True) as production:
        yield production


@pytest.fixture
async def empty_database(servers: Servers) -> AsyncIterator[str]:
    """Yield the URL of a database without tables, as its owner."""
    name = f"package_{os.getpid()}"
    connection = await asyncpg.connect(servers.database_url)
    await connection.execute(f"CREATE DATABASE {name}")
    yield urlsplit(servers.database_url)._replace(path=f"/{name}").geturl()
    await connection.execute(f"DROP DATABASE {name} WITH (FORCE)")
    await connection.close()


def run_page(machine: SystemdMachine, title: str, *replaced: Mapping[str, str]) -> str:
    """Run each block of a section of the page, with values in place of its examples."""
    blocks = [each for each in blocks_of(PAGE) if each.section == title]
    assert blocks, title
    examples = [*replaced, *[{}] * (len(blocks) - len(replaced))]
    scripts = [block.replaced(each) for block, each in zip(blocks, examples, strict=True)]
    return "".join(machine.run("bash", "-euc", script) for script in scripts)


def configure(machine: SystemdMachine, production: Production, database_url: str) -> None:
    """Do the steps of the page: write the URLs and enable the instances."""
    for service in SERVICES:
        role = service.replace("-", "_")
        urls = {
            "amqp": production.url(f"harebell_{role}"),
            "database": as_role(database_url, role),
        }
        for kind, url in urls.items():
            machine.write(f"{CREDENTIALS}/{service}-{kind}-url", f"{url}\n")
    machine.write(f"{CREDENTIALS}/migration-database-url", database_url)
    passwords = dict.fromkeys(ROLES, ROLE_PASSWORD)
    machine.write(f"{CREDENTIALS}/role-passwords", json.dumps(passwords))
    for service in ("intake", "dlq-inspector"):
        machine.write(f"/etc/harebell/{service}.env", f"HAREBELL_TENANTS={ACME}\n", "0640")
    shown = run_page(machine, "Configure", {EXAMPLE_URL: production.url("harebell_intake")})
    assert all(unit in shown for unit in INSTANCES), shown


def states(machine: SystemdMachine) -> set[str]:
    return set(machine.run("systemctl", "is-active", *INSTANCES, check=False).split())


async def await_start(machine: SystemdMachine) -> None:
    async def started() -> bool:
        return await asyncio.to_thread(states, machine) == {"active"}

    try:
        await until(started, within=STARTED, what="the start of every unit")
    except AssertionError:
        pytest.fail(machine.run("journalctl", "--no-pager", "--lines=80", check=False))


async def run_once(production: Production, key: str) -> None:
    """Run a schedule whose target is an exchange of the tenant."""
    async with production.client(ACME) as harebell:
        amqp = {"exchange": f"{ACME}.orders", "routing_key": "new", "json": {}}
        await harebell.put({"key": key, "when": {"now": True}, "target": {"amqp": amqp}})

        async def succeeded() -> bool:
            found = await harebell.schedule(key=key)
            return found.last_run is not None and found.last_run.state == "succeeded"

        await until(succeeded, within=STARTED, what="a run")


async def declare_target(production: Production) -> None:
    async with await aio_pika.connect(production.url(ACME)) as connection:
        channel = await connection.channel()
        exchange = await channel.declare_exchange(f"{ACME}.orders", "topic", durable=True)
        queue = await channel.declare_queue(f"{ACME}.inbox", durable=True)
        await queue.bind(exchange, "#")


async def test_package_is_installed_runs_is_upgraded_and_leaves_nothing(
    machine: SystemdMachine, production: Production, empty_database: str
) -> None:
    machine.write("/etc/apt/apt.conf.d/90yes", ASSUME_YES)
    run_page(machine, "Install", {"./harebell_0.1.0_amd64.deb": "/shared/old.deb"})
    assert machine.run("harebell", "--version").split()[-1] == EARLIER
    assert machine.run("systemctl", "is-enabled", *INSTANCES, check=False).split() == [
        "disabled"
    ] * len(INSTANCES)

    configure(machine, production, empty_database)
    await await_start(machine)
    await declare_target(production)
    await run_once(production, "before")

    second = [each for each in blocks_of(PAGE) if each.section == "Add executors"][-1]
    machine.run("bash", "-euc", second.text)
    assert machine.run("systemctl", "is-active", "harebell-executor@default-2") == "active\n"

    machine.run("sh", "-c", "echo HAREBELL_LOG_LEVEL=debug >>/etc/harebell/harebell.env")
    before = machine.run("systemctl", "show", "--value", "--property=MainPID", *INSTANCES)
    users = machine.run("stat", "--format=%U", *(f"/proc/{pid}" for pid in before.split()))
    run_page(machine, "Upgrade", {"./harebell_0.2.0_amd64.deb": "/shared/new.deb"})
    await await_start(machine)
    after = machine.run("systemctl", "show", "--value", "--property=MainPID", *INSTANCES)
    await run_once(production, "after")

    assert machine.run("harebell", "--version").split()[-1] == __version__
    assert not set(before.split()) & set(after.split())
    assert "debug" in machine.run("cat", "/etc/harebell/harebell.env")
    migrations = machine.run("journalctl", "--unit=harebell-upgrade", "--no-pager")
    assert migrations.count("Finished") == 1, migrations
    assert users.split() == ["harebell"] * len(INSTANCES)

    (removal,) = [each for each in blocks_of(PAGE) if each.section == "Remove"]
    remove, purge = removal.text.splitlines()
    machine.run("bash", "-euc", remove)
    assert states(machine) == {"inactive"}
    assert "intake-amqp-url" in machine.run("ls", CREDENTIALS)
    machine.run("bash", "-euc", purge)
    left = machine.run(
        "find", "/etc", "/usr", "/lib", "/var/lib/systemd", "-iname", "*harebell*", check=False
    )
    assert left == ""
    assert "harebell" not in machine.run("cat", "/etc/passwd", "/etc/group")


async def test_service_without_its_credential_states_the_file(machine: SystemdMachine) -> None:
    machine.run("dpkg", "--install", "/shared/new.deb")

    machine.write(f"{CREDENTIALS}/intake-amqp-url", "amqp://127.0.0.1")
    machine.run("systemctl", "enable", "harebell.target", "harebell-intake@1")
    # systemd forgets the result of a unit that no running unit wants.
    machine.run("systemctl", "start", "harebell.target")

    status = machine.run("systemctl", "status", "--no-pager", "harebell-intake@1", check=False)
    assert f"{CREDENTIALS}/intake-database-url was not met" in status
