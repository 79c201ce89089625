"""`harebell doctor` on real servers, on which each test makes one fault."""

import os
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import quote, urlsplit

import aio_pika
import asyncpg
import pytest
from tests.acceptance.doctor_command import Found, results, run
from tests.acceptance.production import Production
from tests.rig.command_line import MAX_TIME
from tests.rig.polling import until
from tests.rig.servers import Servers, as_role

from harebell.connection.amqp import connect
from harebell.contract import __version__
from harebell.dev.plan import ServiceKind
from harebell.storage.migrate import known_revisions, migrate

pytestmark = [
    pytest.mark.broker,
    pytest.mark.postgres,
    pytest.mark.broker_version,
    pytest.mark.long,
    pytest.mark.requirement("S61"),
]

TENANT = "acme"
POLICIES = f"tenants:\n  {TENANT}:\n    pools: [default]\n"
WITHOUT_LIMIT = "idle_in_transaction_session_timeout"


@pytest.fixture(scope="module")
def production(servers: Servers, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Production]:
    """Yield an installation with one instance of each service. Each test repairs its fault."""
    root = tmp_path_factory.mktemp("doctor")
    with Production.open(servers, root, tenants=(TENANT,)) as opened:
        opened.start()
        yield opened


@pytest.fixture
async def owner(production: Production) -> AsyncIterator[asyncpg.Connection]:
    connection = await asyncpg.connect(production.stack.database_url)
    yield connection
    await connection.close()


def management_url(servers: Servers) -> str:
    assert servers.private is not None
    return servers.private.management_url


async def doctor(
    production: Production, *arguments: str, **environment: str
) -> tuple[int | None, Found]:
    """Run the command with the administrator of the broker and the auditor of the database.

    Repeat a command that a busy machine has not let connect in time.
    """
    stack = production.stack
    variables = {
        "HAREBELL_AMQP_URL": stack.amqp_url,
        "HAREBELL_MANAGEMENT_URL": management_url(stack.servers),
        "HAREBELL_DATABASE_URL": as_role(stack.database_url, "auditor"),
    }

    async def reached() -> tuple[int | None, Found] | None:
        code, found = await run(*arguments, **variables | environment)
        return (code, found) if results(found, "broker link") == {"ok"} else None

    done = await until(reached, within=MAX_TIME, what="the link to the broker")
    assert done is not None
    return done


async def failure(production: Production, check: str, *arguments: str) -> dict[str, str]:
    """Return the only row of a check, after it fails while every other check does not.

    The statistics of the broker are some seconds old.
    """

    async def only_failure() -> dict[str, str] | None:
        code, found = await doctor(production, *arguments)
        failed = {name for name in found if "failed" in results(found, name)}
        is_only = (code, failed, len(found[check])) == (1, {check}, 1)
        return found[check][0] if is_only else None

    row = await until(only_failure, within=MAX_TIME, what=f"only the failure of {check}")
    assert row is not None
    assert row["remedy"]
    return row


async def warning(production: Production, check: str, *arguments: str) -> dict[str, str]:
    """Return the only row of a check, after it is a warning and no check fails."""

    async def only_warning() -> dict[str, str] | None:
        code, found = await doctor(production, *arguments)
        is_only = (code, results(found, check), len(found[check])) == (0, {"warning"}, 1)
        return found[check][0] if is_only else None

    row = await until(only_warning, within=MAX_TIME, what=f"only the warning of {check}")
    assert row is not None
    assert row["remedy"]
    return row


def vhost_of(production: Production) -> str:
    return quote(urlsplit(production.stack.amqp_url).path.removeprefix("/"), safe="")


@asynccontextmanager
async def altered(owner: asyncpg.Connection, subject: str, setting: str) -> AsyncIterator[None]:
    """Set a setting for new sessions, such as of `DATABASE x`, until the end of the block."""
    name = setting.split(" ", 1)[0]
    await owner.execute(f"ALTER {subject} SET {setting}")
    try:
        yield
    finally:
        await owner.execute(f"ALTER {subject} RESET {name}")


async def database_name(owner: asyncpg.Connection) -> str:
    return str(await owner.fetchval("SELECT current_database()"))


async def test_healthy_installation_has_no_fault(
    production: Production, owner: asyncpg.Connection, tmp_path: Path
) -> None:
    document = tmp_path / "tenants.yaml"
    document.write_text(POLICIES)
    database = f"DATABASE {await database_name(owner)}"

    async def is_healthy() -> Found | None:
        code, rows = await doctor(production, "--tenants-file", str(document))
        return rows if (code, results(rows, "services")) == (0, {"ok"}) else None

    async with altered(owner, database, f"{WITHOUT_LIMIT} = '10min'"):
        found = await until(is_healthy, within=MAX_TIME, what="an installation without a fault")

    assert found is not None
    assert {name: {row["result"] for row in rows} for name, rows in found.items()} == {
        name: {"ok"}
        for name in (
            "broker link",
            "broker release",
            "topology",
            "intake",
            "management link",
            "alarms",
            "plugins",
            "policies",
            "permissions",
            "services",
            "tenant policy",
            "database link",
            "clock",
            "database release",
            "database settings",
            "database connections",
            "migrations",
            "held snapshots",
            "time zone data",
        )
    }
    assert found["services"][0]["text"].endswith(f"with the version {__version__}.")
    assert found["migrations"][0]["text"].endswith(f"{known_revisions()[-1]}.")
    assert all(row["remedy"] is None for rows in found.values() for row in rows)


async def test_permission_that_an_operator_removed_fails(
    production: Production, servers: Servers
) -> None:
    path = f"permissions/{vhost_of(production)}/harebell_dlq_inspector"
    before = servers.management("GET", path)
    servers.management("PUT", path, before | {"write": "^$"})
    try:
        row = await failure(production, "permissions")
    finally:
        servers.management("PUT", path, before)

    assert "The login harebell_dlq_inspector has the write permission '^$', not" in row["text"]
    assert before["write"] in row["remedy"]


async def test_policy_that_is_missing_or_replaced_fails(
    production: Production, servers: Servers
) -> None:
    own = f"policies/{vhost_of(production)}/harebell-tickets"
    other = f"policies/{vhost_of(production)}/everything"
    policy = servers.management("GET", own)
    servers.management("DELETE", own)
    try:
        missing = await failure(production, "policies")
    finally:
        servers.management("PUT", own, policy)
    everything = {"pattern": ".*", "definition": {"max-length": 5}, "priority": 9}
    servers.management("PUT", other, everything)
    try:
        replaced = await failure(production, "policies")
    finally:
        servers.management("DELETE", other)

    assert missing["text"] == "The policy harebell-tickets is missing."
    assert "The policy everything replaces a policy of Harebell" in replaced["text"]


async def test_service_that_stopped_fails(production: Production) -> None:
    production.stack.stop("dispatcher-1")
    try:
        row = await failure(production, "services")
    finally:
        production.start(ServiceKind.DISPATCHER)

    assert row["text"] == "No instance of these services is connected: dispatcher."


async def test_services_of_several_versions_are_a_warning(production: Production) -> None:
    properties = {"service": "executor", "version": "0.0.1"}
    older = await connect(production.stack.amqp_url, name="older", properties=properties)

    async with older:
        row = await warning(production, "services")

    assert f"executor 0.0.1, {__version__}" in row["text"]


async def test_queue_that_differs_fails(production: Production) -> None:
    name = "harebell.delay.001500"
    async with await aio_pika.connect(production.stack.amqp_url) as connection:
        channel = await connection.channel()
        await channel.queue_delete(name)
        row = await failure(production, "topology")
    production.prepare(production.stack.servers, production.tenants)

    assert row["text"].startswith(f"{name}: ")


async def test_login_without_a_tag_skips_what_it_may_not_read(production: Production) -> None:
    address = urlsplit(management_url(production.stack.servers))
    login = urlsplit(production.url("harebell_operator")).netloc.rpartition("@")[0]
    url = address._replace(netloc=f"{login}@{address.netloc}").geturl()

    code, found = await doctor(production, HAREBELL_MANAGEMENT_URL=url)

    rows = [found[name][0] for name in ("alarms", "plugins", "policies", "permissions", "services")]
    assert code == 0
    assert {row["result"] for row in rows} == {"skipped"}
    assert all("Use a login with the tag administrator" in row["remedy"] for row in rows)


async def test_wrong_login_of_the_management_api_fails_and_hides_nothing(
    production: Production,
) -> None:
    address = urlsplit(management_url(production.stack.servers))
    url = address._replace(netloc=f"stranger:wrong@{address.netloc}").geturl()

    code, found = await doctor(production, HAREBELL_MANAGEMENT_URL=url)

    assert code == 1
    assert found["management link"][0]["result"] == "failed"
    assert found["alarms"][0]["result"] == "skipped"
    assert found["topology"][0]["result"] == "ok"
    assert found["migrations"][0]["result"] == "ok"


async def test_document_with_a_fault_fails(production: Production, tmp_path: Path) -> None:
    document = tmp_path / "tenants.yaml"
    document.write_text("tenants:\n  acme:\n    pool: [default]\n")

    row = await failure(production, "tenant policy", "--tenants-file", str(document))

    assert row["text"].startswith("line 3, tenants.acme.pool: ")


@pytest.mark.parametrize("place", ["role", "database"])
async def test_commits_that_are_not_durable_fail(
    production: Production, owner: asyncpg.Connection, place: str
) -> None:
    database = f"DATABASE {await database_name(owner)}"
    subject = f"ROLE harebell_ticker IN {database}" if place == "role" else database
    async with (
        altered(owner, database, f"{WITHOUT_LIMIT} = '10min'"),
        altered(owner, subject, "synchronous_commit = off"),
    ):
        row = await failure(production, "database settings")

    name = "role harebell_ticker has" if place == "role" else "setting synchronous_commit is off"
    assert name in row["text"]


async def test_transactions_without_a_limit_are_a_warning(production: Production) -> None:

    row = await warning(production, "database settings")

    assert f"The setting {WITHOUT_LIMIT} is 0" in row["text"]


async def test_pools_above_the_connections_of_the_server_are_a_warning(
    production: Production,
) -> None:

    row = await warning(production, "database connections", "--pool-max", "1000")

    assert "The pools of 5 instances may open 5000 connections" in row["text"]


async def test_pending_migration_fails(production: Production, servers: Servers) -> None:
    *_, before, newest = known_revisions()
    name = f"old_{os.getpid()}"
    server = await asyncpg.connect(servers.database_url)
    url = urlsplit(servers.database_url)._replace(path=f"/{name}").geturl()
    try:
        await server.execute(f"CREATE DATABASE {name}")
        _, empty = await doctor(production, HAREBELL_DATABASE_URL=url)
        await migrate(url, to=before)
        code, found = await doctor(production, HAREBELL_DATABASE_URL=url)
    finally:
        await server.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")
        await server.close()

    assert empty["migrations"][0]["text"] == "The database has no table of Harebell."
    assert empty["held snapshots"][0]["result"] == "skipped"
    assert code == 1
    assert found["migrations"][0]["result"] == "failed"
    assert f"{newest} is the newest (pending: 1)" in found["migrations"][0]["text"]
    assert found["database release"][0]["result"] == "ok"


async def test_role_without_the_right_to_read_snapshots_skips_them(production: Production) -> None:
    url = as_role(production.stack.database_url, "executor")

    _, found = await doctor(production, HAREBELL_DATABASE_URL=url)

    assert results(found, "held snapshots") == {"skipped"}
    assert "may not read" in found["held snapshots"][0]["text"]


async def test_session_that_holds_a_snapshot_is_a_warning(
    production: Production, owner: asyncpg.Connection
) -> None:
    holder = await asyncpg.connect(
        as_role(production.stack.database_url, "dispatcher"),
        server_settings={"application_name": "forgotten-report"},
    )
    try:
        async with holder.transaction(isolation="repeatable_read"):
            await holder.execute("SELECT 1")
            await owner.execute("SELECT pg_current_xact_id()")
            row = await warning(production, "held snapshots", "--snapshot-age", "100ms")
            _, found = await doctor(production, "--snapshot-age", "1h")
            pid = holder.get_server_pid()
    finally:
        await holder.close()

    assert f"session forgotten-report (pid {pid}, user harebell_dispatcher" in row["text"]
    assert f"pg_terminate_backend({pid})" in row["remedy"]
    assert found["held snapshots"][0]["result"] == "ok"
