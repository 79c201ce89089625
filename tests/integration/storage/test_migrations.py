"""Migrations may be killed, repeated, run beside services: nothing is half done, nobody waits."""

import asyncio
import os
import re
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import urlsplit

import asyncpg
import pytest
from tests.acceptance.stack import until
from tests.rig.servers import Servers

from harebell.storage import migrate as migrating
from harebell.storage.migrate import migrate
from harebell.storage.tables import metadata

pytestmark = pytest.mark.postgres

VERSIONS = sorted((Path(migrating.__file__).parent / "migrations" / "versions").glob("0*.py"))
REVISIONS = [file.name[:4] for file in VERSIONS]
MANY = 200_000  # runs, and as many schedules
LONGEST = 1.0  # seconds that any statement of a service may wait for a lock
UNHURRIED = 0.01  # seconds between two statements of a writer

_COLUMNS = """
SELECT table_name, column_name FROM information_schema.columns
WHERE table_schema = 'public' AND table_name <> 'alembic_version' AND table_name !~ '_[0-9]{8}$'
"""
_INDEXES = """
SELECT indexdef FROM pg_indexes WHERE schemaname = 'public' AND tablename !~ '_[0-9]{8}$'
"""
_GRANTS = """
SELECT grantee, table_name, privilege_type FROM information_schema.role_table_grants
WHERE grantee LIKE 'harebell_%' AND table_name !~ '_[0-9]{8}$'
"""
_NOTES = """
CREATE TABLE IF NOT EXISTS alembic_version
    (version_num varchar(32) CONSTRAINT alembic_version_pkc PRIMARY KEY)
"""
_INVALID = "SELECT indexrelid::regclass::text FROM pg_index WHERE NOT indisvalid"
_WAITS = """
SELECT count(*) > 0 FROM pg_stat_activity
WHERE datname = current_database() AND wait_event_type = 'Lock'
"""
_FILL = """
INSERT INTO schedules (id, tenant, name, class, priority, pool, tags, metadata, version,
    created_at, updated_at)
SELECT md5(n::text)::uuid, 'acme', 'name ' || n, 'normal', 5, 'default', '{}', '{}', 1, now(), now()
FROM generate_series(1, $1) AS n;
INSERT INTO schedule_state (schedule_id, version, state, next_at, changed_at, planned_until,
    dispatched, open_runs)
SELECT id, 1, 'active', now(), now(), now(), 0, '{}' FROM schedules;
INSERT INTO schedule_versions (schedule_id, version, definition, run_spec, fingerprint, accepted_at,
    effective_at)
SELECT id, 1, '{}', '{}', '', now(), now() FROM schedules;
INSERT INTO runs (scheduled_for, schedule_id, tenant, version, seq, pool, lane, priority, state,
    due_at)
SELECT date_trunc('day', now()), id, 'acme', 1, 1, 'default', 'normal', 5, 'staged', now()
FROM schedules
"""
_WRITES = (
    "UPDATE runs SET seq = seq + 1 WHERE schedule_id = $1 AND scheduled_for = current_date",
    "UPDATE schedule_state SET dispatched = dispatched + 1 WHERE schedule_id = $1",
    "UPDATE schedules SET updated_at = now() WHERE id = $1",
    "UPDATE schedule_versions SET note = 'again' WHERE schedule_id = $1",
    "SELECT id, state FROM dead_letters WHERE schedule_id = $1",
)


@pytest.fixture
async def bare_url(servers: Servers) -> AsyncIterator[str]:
    """Of an empty database: nothing has been migrated."""
    name = f"bare_{os.getpid()}_{time.monotonic_ns()}"
    url = urlsplit(servers.database_url)._replace(path=f"/{name}").geturl()
    owner = await asyncpg.connect(servers.database_url)
    try:
        await owner.execute(f"CREATE DATABASE {name}")
        yield url
        await servers.drop_database(url)
    finally:
        await owner.close()


@asynccontextmanager
async def asking(url: str) -> AsyncIterator[asyncpg.Connection]:
    connection = await asyncpg.connect(url)
    try:
        yield connection
    finally:
        await connection.close()


@asynccontextmanager
async def migration_of(url: str) -> AsyncIterator[None]:
    """In a process of its own, which is killed outright."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "harebell.kernel.db"),
        env={"PYTHONPATH": os.pathsep.join(sys.path), "HAREBELL_DATABASE_URL": url},
    )
    try:
        yield
    finally:
        process.kill()
        await process.wait()


async def schema(url: str) -> list[set[tuple[str, ...]]]:
    async with asking(url) as owner:
        assert await owner.fetch(_INVALID) == []
        return [
            {tuple(row) for row in await owner.fetch(query)}
            for query in (_COLUMNS, _INDEXES, _GRANTS)
        ]


@pytest.mark.requirement("S40")
async def test_all_migrations_together_make_the_tables_that_the_code_knows(
    bare_url: str,
) -> None:
    await migrate(bare_url)

    columns, _, _ = await schema(bare_url)
    assert columns == {
        (table.name, column.name) for table in metadata.tables.values() for column in table.columns
    }


@pytest.mark.parametrize("revision", REVISIONS)
async def test_a_migration_that_is_killed_has_done_nothing_and_is_done_whole_the_next_time(
    revision: str, bare_url: str, database_url: str
) -> None:
    """At its very end, when all that is left is to note that it was done."""
    if revision != REVISIONS[0]:
        await migrate(bare_url, to=REVISIONS[REVISIONS.index(revision) - 1])
    async with asking(bare_url) as owner, asking(bare_url) as other:
        await owner.execute(_NOTES)
        await other.execute("BEGIN")
        await other.execute("LOCK TABLE alembic_version IN EXCLUSIVE MODE")
        async with migration_of(bare_url):
            await until(lambda: owner.fetchval(_WAITS), what="the end of the migration")
        await other.execute("ROLLBACK")
        noted = await owner.fetch("SELECT version_num FROM alembic_version")

    assert revision not in {row["version_num"] for row in noted}
    await migrate(bare_url)
    assert await schema(bare_url) == await schema(database_url)


async def test_an_index_whose_making_was_broken_off_is_made_again(
    bare_url: str, database_url: str
) -> None:
    await migrate(bare_url, to="0003")
    async with asking(bare_url) as owner, asking(bare_url) as old:
        await old.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
        await old.execute("UPDATE schedules SET name = name")  # others wait for its end
        migration = asyncio.create_task(migrate(bare_url))
        await until(lambda: owner.fetchval(_WAITS), what="an index that waits")
        await owner.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE datname = current_database() AND wait_event_type = 'Lock'"
        )
        (broken,) = await asyncio.gather(migration, return_exceptions=True)
        await old.execute("ROLLBACK")
        left = await owner.fetch(_INVALID)

    assert isinstance(broken, Exception)
    assert [row[0] for row in left] == ["schedules_name"]
    await migrate(bare_url)
    assert await schema(bare_url) == await schema(database_url)


async def test_two_migrations_at_once_wait_for_each_other(bare_url: str, database_url: str) -> None:
    await asyncio.gather(migrate(bare_url), migrate(bare_url))

    assert await schema(bare_url) == await schema(database_url)


async def test_no_service_waits_for_a_migration_of_200_000_schedules_and_runs(
    bare_url: str, record_property: Callable[[str, object], None]
) -> None:
    """From the first schema to the newest; whoever waits for a lock for a second fails."""
    await migrate(bare_url, to=REVISIONS[0])
    async with asking(bare_url) as owner:
        for statement in _FILL.replace("$1", str(MANY)).split(";"):
            await owner.execute(statement)
    over = asyncio.Event()
    writers = [asyncio.create_task(write(bare_url, each, over)) for each in _WRITES]
    began = time.monotonic()
    await migrate(bare_url)
    record_property("migrated", f"{MANY} schedules and runs in {time.monotonic() - began:.2f} s")
    over.set()

    for statement, longest in zip(_WRITES, await asyncio.gather(*writers), strict=True):
        record_property(" ".join(statement.split()[:3]), f"{longest:.3f} s at the longest")


async def write(url: str, statement: str, over: asyncio.Event) -> float:
    """Until it is over, with a service's patience; the seconds that the longest has taken."""
    longest, number = 0.0, 0
    async with asking(url) as connection:
        await connection.execute(f"SET lock_timeout = '{LONGEST}s'")
        while not over.is_set():
            number = number % MANY + 1
            (key,) = await connection.fetchrow("SELECT md5($1::int::text)::uuid", number)
            began = time.monotonic()
            await connection.execute(statement, key)
            longest = max(longest, time.monotonic() - began)
            await asyncio.sleep(UNHURRIED)
    return longest


@pytest.mark.parametrize("file", VERSIONS[1:], ids=lambda file: file.stem)
def test_indexes_on_tables_that_are_in_use_are_made_beside_their_writers(file: Path) -> None:
    """And by a migration that does nothing else: it cannot be taken back."""
    script = file.read_text()
    new = set(re.findall(r"CREATE TABLE (\w+)", script))

    assert set(re.findall(r"CREATE (?:UNIQUE )?INDEX \w+ ON (\w+)", script)) <= new
    assert "index_concurrently" not in script or script.count("op.execute") == 1  # to go back


@pytest.mark.parametrize("file", VERSIONS, ids=lambda file: file.stem)
def test_a_migration_is_written_out_and_does_not_change_with_the_code(file: Path) -> None:
    assert "metadata.create_all" not in file.read_text()
