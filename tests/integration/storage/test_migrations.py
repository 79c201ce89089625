"""Migrations may be killed, repeated and run beside services: each one is atomic and fast."""

import asyncio
import multiprocessing
import os
import re
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import asyncpg
import pytest
from alembic.migration import MigrationContext
from alembic.operations import Operations
from sqlalchemy import Connection
from sqlalchemy.ext.asyncio import create_async_engine
from tests.rig.polling import until
from tests.rig.servers import Servers

from harebell.storage import migrate as migrate_module
from harebell.storage.migrate import migrate
from harebell.storage.migrations.concurrent_index import index_concurrently
from harebell.storage.tables import metadata

pytestmark = pytest.mark.postgres

DIRECTORY = Path(migrate_module.__file__).parent / "migrations" / "versions"
MIGRATIONS = sorted(DIRECTORY.glob("0*.py"))
REVISIONS = [file.name[:4] for file in MIGRATIONS]
# A process is a copy of one that has imported the migration, because the import lasts longer.
PROCESSES = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload(["harebell.storage.migrate"])
ROWS = 200_000  # runs, and schedules
MAX_WAIT = 1.0  # seconds that a statement of a service may wait for a lock
WRITE_INTERVAL = 0.01  # seconds between two statements of a writer

_COLUMNS = """
SELECT table_name, column_name, is_nullable = 'YES' FROM information_schema.columns
WHERE table_schema = 'public' AND table_name <> 'alembic_version'
  AND table_name !~ '_([0-9]{8}|past)$'
"""
_INDEXES = """
SELECT indexdef FROM pg_indexes WHERE schemaname = 'public' AND tablename !~ '_([0-9]{8}|past)$'
"""
_GRANTS = """
SELECT grantee, table_name, privilege_type FROM information_schema.role_table_grants
WHERE grantee LIKE 'harebell_%' AND table_name !~ '_([0-9]{8}|past)$'
"""
# Neither their names nor their number, because midnight may come between two migrations.
_PARTITIONED = """
SELECT inhparent::regclass::text FROM pg_inherits
WHERE inhparent IN ('runs'::regclass, 'attempts'::regclass)
"""
_VERSION_TABLE = """
CREATE TABLE IF NOT EXISTS alembic_version
    (version_num varchar(32) CONSTRAINT alembic_version_pkc PRIMARY KEY)
"""
_OLD_BREAKERS = """
INSERT INTO breakers (downstream, state, forced) VALUES
    ('http:acme.example', 'closed', 'open'), ('http:acme.example:8443', 'open', 'closed'),
    ('http:other.example', 'open', NULL), ('task:acme.report', 'open', NULL)
"""
_OLD_DEAD_LETTERS = """
INSERT INTO failure_groups (id, tenant, target, error_code, message, first_at, last_at, state)
SELECT md5(tenant)::uuid, tenant, 'queue', 'x', '', now(), now(), 'open'
FROM unnest(ARRAY['acme', 'default']) AS tenant;
INSERT INTO dead_letters (id, tenant, kind, reason, attempts, dead_at, state, payload, group_id)
SELECT lpad(to_hex(id), 32, '0')::uuid, tenant, kind, 'x', 0, now(), 'open',
    jsonb_build_object('queue', queue, 'routing_key', key), md5(tenant)::uuid
FROM (VALUES (1, 'acme', 'run', NULL, NULL), (2, 'default', 'run', NULL, NULL),
    (3, 'default', 'message', 'harebell.intake', 'default.schedule.put'),
    (4, 'default', 'message', 'harebell.work.default.normal', 'default.normal'),
    (5, 'default', 'message', 'harebell.dlq', 'dlq')) AS old (id, tenant, kind, queue, key)
"""
_INSERT_AS_AN_OLDER_SERVICE = """
INSERT INTO dead_letters (id, tenant, kind, reason, attempts, dead_at, state, payload, group_id)
SELECT lpad(to_hex(id), 32, '0')::uuid, 'default', 'message', 'x', 0, now(), 'open', '{}',
    md5('default')::uuid
FROM unnest(ARRAY[1, 6]) AS id
ON CONFLICT (id) DO NOTHING RETURNING id
"""
_DEAD_LETTERS = "SELECT id, tenant FROM dead_letters"
_GROUPS_OF_DEAD_LETTERS = """
SELECT tenant, count(*) FROM dead_letters
JOIN failure_groups USING (tenant) WHERE group_id = failure_groups.id GROUP BY tenant ORDER BY 1
"""
_PRIMARY_KEY = """
SELECT attname FROM pg_index
JOIN pg_attribute ON attrelid = indrelid AND attnum = ANY(indkey)
WHERE indrelid = 'dead_letters'::regclass AND indisprimary ORDER BY array_position(indkey, attnum)
"""
_INVALID_INDEXES = "SELECT indexrelid::regclass::text FROM pg_index WHERE NOT indisvalid"
_IS_WAITING = """
SELECT count(*) > 0 FROM pg_stat_activity
WHERE datname = current_database() AND wait_event_type = 'Lock'
"""
_TERMINATE_WAITING = """
SELECT pg_terminate_backend(pid) FROM pg_stat_activity
WHERE datname = current_database() AND wait_event_type = 'Lock'
"""
_LAST_PARTITION = """
SELECT max(inhrelid::regclass::text) FROM pg_inherits
WHERE inhparent = 'runs'::regclass AND inhrelid <> 'runs_past'::regclass
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
    """Yield the URL of an empty database without a migration."""
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
async def connected(url: str) -> AsyncIterator[asyncpg.Connection]:
    connection = await asyncpg.connect(url)
    try:
        yield connection
    finally:
        await connection.close()


@contextmanager
def migration_process(url: str) -> Iterator[None]:
    """Run a migration in its own process, and kill the process at the end of the block."""
    process = PROCESSES.Process(target=migrate_in_process, args=(url,))
    process.start()
    try:
        yield
    finally:
        process.kill()
        process.join()


def migrate_in_process(url: str) -> None:
    asyncio.run(migrate(url))


async def schema(url: str) -> list[set[tuple[object, ...]]]:
    async with connected(url) as owner:
        assert await owner.fetch(_INVALID_INDEXES) == []
        return [
            {tuple(row) for row in await owner.fetch(query)}
            for query in (_COLUMNS, _INDEXES, _GRANTS, _PARTITIONED)
        ]


async def create_index(url: str, name: str, definition: str) -> None:
    """Create the index as a migration does."""
    engine = create_async_engine(url.replace("://", "+asyncpg://", 1))

    def create(connection: Connection) -> None:
        context = MigrationContext.configure(connection, opts={"transaction_per_migration": True})
        with context.begin_transaction(_per_migration=True), Operations.context(context) as op:
            index_concurrently(op, {name: definition})

    try:
        async with engine.connect() as connection:
            await connection.run_sync(create)
    finally:
        await engine.dispose()


@pytest.mark.requirement("S40")
async def test_migration_creates_the_tables_of_the_code(bare_url: str) -> None:
    await migrate(bare_url)

    columns, _, _, _ = await schema(bare_url)
    assert columns == {
        (table.name, column.name, column.nullable)
        for table in metadata.tables.values()
        for column in table.columns
    }


async def test_repeated_migration_changes_nothing(bare_url: str) -> None:
    await migrate(bare_url)
    before = await schema(bare_url)

    await migrate(bare_url)

    assert await schema(bare_url) == before


@pytest.mark.long
async def test_killed_migration_has_no_effect_and_the_next_one_is_complete(
    bare_url: str, database_url: str
) -> None:
    """Each migration is killed at its end, when it waits to record its revision."""
    async with connected(bare_url) as owner, connected(bare_url) as other:
        await owner.execute(_VERSION_TABLE)
        for revision in REVISIONS:
            await other.execute("BEGIN")
            await other.execute("LOCK TABLE alembic_version IN EXCLUSIVE MODE")
            with migration_process(bare_url):
                await until(lambda: owner.fetchval(_IS_WAITING), what=f"the end of {revision}")
            await other.execute("ROLLBACK")

            recorded = await owner.fetch("SELECT version_num FROM alembic_version")
            assert revision not in {row["version_num"] for row in recorded}
            await migrate(bare_url, to=revision)

    assert await schema(bare_url) == await schema(database_url)


async def test_concurrent_migrations_wait_for_each_other(bare_url: str, database_url: str) -> None:
    await asyncio.gather(migrate(bare_url), migrate(bare_url))

    assert await schema(bare_url) == await schema(database_url)


async def test_concurrent_index_is_created_again_when_its_creation_is_interrupted(
    database_url: str,
) -> None:
    index = "schedules_of_pool", "schedules (pool)"
    async with connected(database_url) as owner, connected(database_url) as old:
        await old.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
        await old.execute("UPDATE schedules SET name = name")  # the index waits for its end
        creation = asyncio.create_task(create_index(database_url, *index))
        await until(lambda: owner.fetchval(_IS_WAITING), what="an index that waits")
        await owner.execute(_TERMINATE_WAITING)
        (error,) = await asyncio.gather(creation, return_exceptions=True)
        await old.execute("ROLLBACK")
        invalid = await owner.fetch(_INVALID_INDEXES)

    assert isinstance(error, Exception)
    assert [row[0] for row in invalid] == ["schedules_of_pool"]
    await create_index(database_url, *index)
    _, indexes, _, _ = await schema(database_url)
    assert any("schedules_of_pool" in str(definition) for (definition,) in indexes)


@pytest.mark.long
async def test_service_does_not_wait_for_a_migration_of_200_000_schedules_and_runs(
    bare_url: str, record_property: Callable[[str, object], None]
) -> None:
    """A migration creates a partition and an index. A wait of a second for a lock fails."""
    await migrate(bare_url)
    async with connected(bare_url) as owner:
        for statement in _FILL.replace("$1", str(ROWS)).split(";"):
            await owner.execute(statement)
        last_partition = await owner.fetchval(_LAST_PARTITION)
        await owner.execute(f"DROP TABLE {last_partition}")
    stop = asyncio.Event()
    writers = [asyncio.create_task(write(bare_url, each, stop)) for each in _WRITES]
    started_at = time.monotonic()
    await migrate(bare_url)
    await create_index(bare_url, "schedules_of_pool", "schedules (pool)")
    seconds = time.monotonic() - started_at
    record_property("migrated", f"{ROWS} schedules and runs in {seconds:.2f} s")
    stop.set()

    for statement, longest in zip(_WRITES, await asyncio.gather(*writers), strict=True):
        record_property(" ".join(statement.split()[:3]), f"{longest:.3f} s at most")
    async with connected(bare_url) as owner:
        assert await owner.fetchval("SELECT to_regclass($1) IS NOT NULL", last_partition)


async def write(url: str, statement: str, stop: asyncio.Event) -> float:
    """Repeat the statement until `stop` is set, and return the longest duration in seconds."""
    longest, number = 0.0, 0
    async with connected(url) as connection:
        await connection.execute(f"SET lock_timeout = '{MAX_WAIT}s'")
        while not stop.is_set():
            number = number % ROWS + 1
            (key,) = await connection.fetchrow("SELECT md5($1::int::text)::uuid", number)
            started_at = time.monotonic()
            await connection.execute(statement, key)
            longest = max(longest, time.monotonic() - started_at)
            await asyncio.sleep(WRITE_INTERVAL)
    return longest


def test_later_migration_creates_the_indexes_of_existing_tables_concurrently() -> None:
    """A migration with such an index does nothing else, because the index commits every step."""
    for file in MIGRATIONS[1:]:
        script = file.read_text()
        new_tables = set(re.findall(r"CREATE TABLE (\w+)", script))
        indexed = set(re.findall(r"CREATE (?:UNIQUE )?INDEX \w+ ON (\w+)", script))

        assert indexed <= new_tables
        assert "index_concurrently" not in script or script.count("op.execute") == 1


@pytest.mark.parametrize("file", MIGRATIONS, ids=lambda file: file.stem)
def test_migration_does_not_change_with_the_code(file: Path) -> None:
    assert "metadata.create_all" not in file.read_text()


@pytest.mark.requirement("P4", "S35")
async def test_migration_of_dead_letters_keeps_ids_and_gives_unowned_ones_to_the_operators(
    bare_url: str,
) -> None:
    await migrate(bare_url, to="0005")
    async with connected(bare_url) as owner:
        await owner.execute(_OLD_DEAD_LETTERS)

    await migrate(bare_url)

    async with connected(bare_url) as owner:
        before = {row["id"].int: row["tenant"] for row in await owner.fetch(_DEAD_LETTERS)}
        groups = await owner.fetch(_GROUPS_OF_DEAD_LETTERS)
        await owner.execute(_INSERT_AS_AN_OLDER_SERVICE)
        moved = await owner.fetchval("SELECT harebell_move_unowned_dead_letters()")
        after = {row["id"].int: row["tenant"] for row in await owner.fetch(_DEAD_LETTERS)}
        key = await owner.fetch(_PRIMARY_KEY)
    assert before == {1: "acme", 2: "default", 3: "default", 4: "harebell", 5: "harebell"}
    assert [tuple(row) for row in groups] == [("acme", 1), ("default", 2), ("harebell", 2)]
    assert (moved, after) == (1, before | {6: "harebell"})
    assert [row["attname"] for row in key] == ["tenant", "id"]


@pytest.mark.requirement("S113")
async def test_migration_of_breakers_gives_forced_hosts_their_ports(bare_url: str) -> None:
    await migrate(bare_url, to="0001")
    async with connected(bare_url) as owner:
        await owner.execute(_OLD_BREAKERS)

    await migrate(bare_url)

    async with connected(bare_url) as owner:
        rows = await owner.fetch("SELECT downstream, forced FROM breakers ORDER BY downstream")
    assert [tuple(row) for row in rows] == [
        ("acme.example:443", "open"),
        ("acme.example:80", "open"),
        ("acme.example:8443", "closed"),
        ("task:acme.report", None),
    ]
