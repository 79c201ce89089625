"""A backup under load that is restored later, by the commands of the page on backups."""

import asyncio
import os
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import asyncpg
import pytest
from tests.acceptance.faults import until_called, until_ready
from tests.acceptance.recording_target import Call, Target
from tests.acceptance.stack import Stack, now
from tests.fakes.history import History, insert_history
from tests.fakes.stored_schedules import schedule_ids, store_schedules
from tests.rig.polling import until
from tests.rig.servers import Servers, as_role, server_directory
from tests.rig.standby import StandbyPair, program

from harebell.audit.audit import Scope, run_audit
from harebell.audit.model.records import FindingKind
from harebell.audit.store import connect_read_only
from harebell.dev.os_user import unprivileged_user
from harebell.dev.plan import ServiceCounts
from harebell.dev.postgres import DATA, Database
from harebell.domain.run_states import SEQ_BITS
from harebell.storage.engine import open_pool
from harebell.storage.migrate import migrate

pytestmark = [pytest.mark.broker, pytest.mark.postgres, pytest.mark.long]

PAGE = Path(__file__).parents[2] / "docs" / "operations" / "backup.md"
COUNTS = ServiceCounts()
READY_TIMEOUT = 30.0  # seconds
END_TIMEOUT = 60.0  # seconds
_BLOCK = re.compile(r"^```sh\n(.*?)^```", re.MULTILINE | re.DOTALL)


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[StandbyPair]:
    """Yield a primary, and the place of the backup instead of a standby."""
    with server_directory(tmp_path / "databases") as directory:
        opened = StandbyPair(directory)
        try:
            opened.primary.start()
            yield opened
        finally:
            opened.discard()


@pytest.fixture
def stack(
    servers: Servers, pair: StandbyPair, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Stack]:
    given = replace(servers, database_url=pair.database_url)
    with Stack.open(given, tmp_path_factory.mktemp("restored")) as opened:
        opened.start(COUNTS)
        yield opened


def execute(command: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Execute a command of the page. The programs of PostgreSQL run as the user of the server."""
    user = unprivileged_user() if command.startswith("pg_") else None
    scripts = Path(sys.executable).parent
    path = f"{scripts}:{program('pg_basebackup').parent}:/usr/bin:/bin"
    return subprocess.run(  # noqa: S603  # the commands of our page
        ["/bin/bash", "-euo", "pipefail", "-c", command],
        env={"PATH": path, "PYTHONPATH": os.pathsep.join(sys.path)} | variables,
        cwd="/",
        user=None if user is None else user.uid,
        group=None if user is None else user.gid,
        extra_groups=None if user is None else [],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.mark.requirement("S92")
async def test_restored_backup_continues_and_its_tokens_rise(
    stack: Stack, pair: StandbyPair, target: Target
) -> None:
    back_up, verify, new_epoch, audit_before, audit_after, *_ = _BLOCK.findall(PAGE.read_text())
    folder = pair.standby.directory
    folder.mkdir(parents=True)
    if (user := unprivileged_user()) is not None:
        os.chown(folder, user.uid, user.gid)
    variables = {"PRIMARY": pair.primary.database_url, "BACKUP": str(folder / DATA)}
    auditor = {
        "HAREBELL_DATABASE_URL": as_role(stack.database_url, "auditor"),
        "HAREBELL_AMQP_URL": stack.amqp_url,
    }
    began = now()

    async with stack.tenant("restored") as tenant:
        await tenant.put("second", {"every": "1s"}, target.http("second"), catch_up={"mode": "all"})
        await until_called(target, "second", 2)
        for command in (back_up, verify):
            done = await asyncio.to_thread(execute, command, **variables)
            assert done.returncode == 0, done.stderr
        await tenant.put("lost", {"every": "1s"}, target.http("lost"))
        known = len(target.calls("second"))
        await until_called(target, "second", known + 4)
        await until_called(target, "lost", 2)

    await asyncio.to_thread(pair.primary.kill)
    await asyncio.to_thread(stack.stop)
    await asyncio.to_thread(pair.standby.start)
    owner = {"HAREBELL_DATABASE_URL": stack.database_url}
    done = await asyncio.to_thread(execute, new_epoch, **owner)
    assert re.fullmatch(r"The epoch of new fencing tokens is \d+\.\n", done.stdout), done.stderr
    done = await asyncio.to_thread(execute, audit_before, **auditor)
    assert "second" in done.stdout, done.stderr
    await asyncio.to_thread(stack.start, COUNTS)
    await until_ready(stack, COUNTS, within=READY_TIMEOUT)

    async with stack.tenant("restored") as tenant:
        epoch = await tenant.ledger.fetchval("SELECT harebell_epoch()")
        await until_repeated(target, epoch)
        await tenant.harebell.cancel(key="second")

        async def ended() -> bool:
            return all(run["finished_at"] is not None for run in await tenant.runs())

        await until(ended, within=END_TIMEOUT, what="the end of every run")
        recorded = {run["scheduled_for"] for run in await tenant.runs()}
        async with connect_read_only(stack.database_url) as ledger:
            report = await run_audit(
                ledger, began, scope=Scope(tenant="restored"), late_after=timedelta(hours=1)
            )
    done = await asyncio.to_thread(execute, audit_after, **auditor)

    calls = target.calls("second")
    by_run: dict[str, list[Call]] = defaultdict(list)
    for call in sorted(calls, key=lambda each: each.started_at):
        by_run[call.run_id].append(call)
    assert any(len(of_run) > 1 for of_run in by_run.values())
    for run, of_run in by_run.items():
        tokens = [call.token for call in of_run]
        assert tokens == sorted(set(tokens)), run
        assert {call.idempotency_key for call in of_run} == {run}
    assert {call.scheduled_for for call in calls} <= recorded
    assert [each for each in report.findings if each.kind is not FindingKind.LATE] == []
    assert done.returncode == 0, done.stdout + done.stderr
    assert not [call for call in target.calls("lost") if call.token >> SEQ_BITS == epoch]


@pytest.mark.requirement("S92")
async def test_dump_restores_into_a_new_cluster(pair: StandbyPair) -> None:
    *_, dump, restore = _BLOCK.findall(PAGE.read_text())
    await migrate(pair.primary.database_url)
    ids = tuple(schedule_ids(2))
    async with open_pool(pair.primary.database_url, name="test") as pool:
        await store_schedules(pool, ids, {"cron": "0 9 * * *"}, now())
    async with connected(pair.primary) as connection:
        await insert_history(connection, History(day=now().date() - timedelta(days=40), ids=ids))
    pair.standby.start()
    (folder := pair.standby.directory / "dumps").mkdir()
    folder.chmod(0o777)
    variables = {
        "PRIMARY": pair.primary.database_url,
        "RESTORED": pair.standby.database_url,
        "MAINTENANCE": pair.standby.database_url.removesuffix("harebell") + "postgres",
        "BACKUP": str(folder / "backup"),
    }

    for command in (dump, restore):
        done = await asyncio.to_thread(execute, command, **variables)
        assert done.returncode == 0, done.stderr

    await migrate(pair.standby.database_url)
    assert await rows_of(pair.standby) == (expected := await rows_of(pair.primary))
    assert (expected["schedules"], expected["runs"], expected["attempts"]) == (2, 24, 24)
    assert schema_of(pair.standby) == schema_of(pair.primary)


@asynccontextmanager
async def connected(database: Database) -> AsyncIterator[asyncpg.Connection]:
    connection = await asyncpg.connect(database.database_url)
    try:
        yield connection
    finally:
        await connection.close()


async def rows_of(database: Database) -> dict[str, int]:
    """Return the number of rows of each table."""
    tables = "SELECT tablename FROM pg_tables WHERE schemaname = 'public'"
    async with connected(database) as connection:
        names = [row[0] for row in await connection.fetch(tables)]
        return {
            name: await connection.fetchval(f'SELECT count(*) FROM "{name}"')  # noqa: S608  # names of the catalogue
            for name in names
        }


def schema_of(database: Database) -> set[str]:
    """Return the lines of the schema: tables, functions, owners and rights."""
    done = execute('pg_dump --schema-only --dbname="$URL"', URL=database.database_url)
    assert done.returncode == 0, done.stderr
    return {line for line in done.stdout.splitlines() if not line.startswith("\\")}


async def until_repeated(target: Target, epoch: int) -> None:
    """Wait until a run that was executed after the backup is called again, and a later run too."""

    async def repeated() -> bool:
        calls = target.calls("second")
        before = {call.run_id for call in calls if call.token >> SEQ_BITS != epoch}
        after = {call.run_id for call in calls if call.token >> SEQ_BITS == epoch}
        return bool(after & before) and bool(after - before)

    await until(repeated, within=END_TIMEOUT, what="a second call after the restoration")
