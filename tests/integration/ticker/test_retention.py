"""The retention on PostgreSQL: days and batches that leave the ledger, and rows that stay."""

import asyncio
import gzip
import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import asyncpg
import pytest
from tests.fakes.history import History, insert_dead_letter, insert_history, runs_by_day
from tests.fakes.stored_schedules import schedule_ids, store_schedules
from tests.rig.polling import until
from tests.rig.servers import as_role

from harebell.domain.tenant_policy import TenantPolicies
from harebell.runtime import failpoint
from harebell.runtime.archive import ArchiveFault, list_days, read_day, read_rows, verify_part
from harebell.runtime.failpoint import Failpoint, InjectedFailure
from harebell.runtime.settings import PoolBounds, TickerSettings
from harebell.storage.engine import open_pool
from harebell.ticker import retention as module
from harebell.ticker.retention import PartFault, Retention

IDS: Final = tuple(schedule_ids(3))
ONE_TEST: Final = timedelta(minutes=1)
OVERRIDE: Final = '{"target": {"http": {"url": "https://acme.example/?key=secret-text"}}}'


def day(days_ago: int) -> Any:
    return datetime.now(UTC).date() - timedelta(days=days_ago)


def start(days_ago: int) -> datetime:
    return datetime.combine(day(days_ago), datetime.min.time(), UTC)


@pytest.fixture(autouse=True)
async def same_day() -> None:
    """Wait for the next day if this one may end during the test, which counts days from today."""
    left = start(-1) - datetime.now(UTC)
    if left < ONE_TEST:
        await asyncio.sleep(left.total_seconds())


@pytest.fixture
async def owner(database_url: str) -> AsyncIterator[asyncpg.Connection]:
    connection = await asyncpg.connect(database_url, server_settings={"timezone": "UTC"})
    yield connection
    await connection.close()


@pytest.fixture
async def pool(database_url: str) -> AsyncIterator[asyncpg.Pool]:
    """Yield a pool with the rights of a ticker."""
    url = as_role(database_url, "ticker")
    async with open_pool(url, name="test", bounds=PoolBounds(max_size=4)) as opened:
        yield opened


def retention(
    pool: asyncpg.Pool, *, policies: Any = None, batch: int = 7, **settings: Any
) -> Retention:
    urls = {"amqp_url": "amqp://127.0.0.1", "database_url": "postgresql://127.0.0.1/x"}
    settings = {"run_retention": "10d"} | settings
    return Retention(
        pool=pool,
        settings=TickerSettings.model_validate(urls | settings),
        policies=TenantPolicies.parse(policies),
        batch=batch,
    )


async def retained_parts(owner: asyncpg.Connection) -> set[str]:
    names = await partitions(owner)
    return {each.removeprefix("retired_runs_") for each in names if each.startswith("retired_runs")}


async def partitions(owner: asyncpg.Connection) -> set[str]:
    rows = await owner.fetch(
        "SELECT relname FROM pg_class WHERE relkind = 'r' AND relname ~ '(runs|attempts)_'"
    )
    return {row[0] for row in rows}


@pytest.mark.requirement("S118")
async def test_day_older_than_the_retention_is_removed_with_its_partitions(
    owner: asyncpg.Connection, pool: asyncpg.Pool
) -> None:
    for days_ago in (11, 10, 9, 2):
        await insert_history(owner, History(day=day(days_ago), ids=IDS))

    await retention(pool).run_pass()

    assert list(await runs_by_day(owner)) == [day(10), day(9), day(2)]
    assert await owner.fetchval("SELECT count(*) FROM attempts") == 3 * 24


async def test_first_partitions_make_room_for_the_partition_of_earlier_times(
    owner: asyncpg.Connection, pool: asyncpg.Pool
) -> None:
    """A range of skipped times may begin before every partition."""
    await owner.execute("DROP TABLE runs_past, attempts_past")
    await owner.execute("SELECT harebell_ensure_partitions($1, $2)", day(40), day(36))
    for parent in ("runs", "attempts"):
        await owner.execute(f"CREATE TABLE {parent}_past (LIKE {parent} INCLUDING ALL)")
        await owner.execute(
            f"ALTER TABLE {parent} ATTACH PARTITION {parent}_past "
            f"FOR VALUES FROM (MINVALUE) TO ('{day(40)} 00:00+00')"
        )
    await owner.execute("SELECT harebell_ensure_partitions($1, $2)", day(35), day(31))
    for days_ago in (40, 38, 31):
        await insert_history(owner, History(day=day(days_ago), ids=IDS))

    await retention(pool, run_retention="30d").run_pass()
    await insert_history(owner, History(day=day(400), ids=IDS))
    await insert_history(owner, History(day=day(33), ids=IDS))

    names = await partitions(owner)
    assert f"runs_{day(30):%Y%m%d}" in names
    assert not {f"runs_{day(each):%Y%m%d}" for each in range(31, 41)} & names
    assert await runs_by_day(owner) == {day(400): 24, day(33): 24}
    await retention(pool, run_retention="30d").run_pass()
    assert await runs_by_day(owner) == {}


@pytest.mark.requirement("S118")
@pytest.mark.parametrize("archives", [False, True])
async def test_open_unresolved_needed_and_recent_runs_stay_in_their_day(
    owner: asyncpg.Connection, pool: asyncpg.Pool, tmp_path: Path, *, archives: bool
) -> None:
    await insert_history(owner, History(day=day(11), ids=IDS[:1], state="dead"))
    change = "UPDATE runs SET state = $2, finished_at = $3 WHERE scheduled_for = $1"
    times = [start(11) + timedelta(hours=hour) for hour in range(24)]
    await owner.execute(change, times[0], "running", None)
    await owner.execute(change, times[1], "unresolved", times[1])
    await owner.execute(change, times[2], "succeeded", datetime.now(UTC))
    await insert_dead_letter(owner, times[3], IDS[0])
    await insert_dead_letter(owner, times[4], IDS[0], state="discarded")
    await owner.execute(
        "UPDATE runs SET state = 'skipped', range_until = $2 WHERE scheduled_for = $1",
        times[5],
        datetime.now(UTC) - timedelta(days=5),
    )
    settings: dict[str, Any] = {"archive_dir": tmp_path} if archives else {}

    await retention(pool, **settings).run_pass()
    await retention(pool, **settings).run_pass()

    kept = await owner.fetch("SELECT scheduled_for FROM runs ORDER BY 1")
    assert [row[0] for row in kept] == [times[each] for each in (0, 1, 2, 3, 5)]
    assert await owner.fetchval("SELECT count(*) FROM attempts") == 5
    if archives:
        (archived,) = list_days(tmp_path)
        found = read_day(tmp_path, archived)
        assert (found.count("runs"), found.count("attempts")) == (19, 19)


async def test_partition_goes_after_its_last_run_may_go(
    owner: asyncpg.Connection, pool: asyncpg.Pool
) -> None:
    old = day(12)
    await insert_history(owner, History(day=old, ids=IDS, state="dead"))
    await insert_dead_letter(owner, start(12), IDS[0])
    await retention(pool).run_pass()
    assert await runs_by_day(owner) == {old: 1}

    await owner.execute("UPDATE dead_letters SET state = 'discarded'")
    await owner.execute("UPDATE examined_days SET examined_at = now() - interval '1 day'")
    await retention(pool).run_pass()

    assert await runs_by_day(owner) == {}


@pytest.mark.requirement("S118")
async def test_tenant_policy_replaces_the_retention_of_runs(
    owner: asyncpg.Connection, pool: asyncpg.Pool
) -> None:
    policies = {
        "tenants": {
            "brief": {"retention": {"runs": "2d"}},
            "long": {"retention": {"runs": "60d"}},
        }
    }
    for days_ago in (50, 5, 1):
        for index, tenant in enumerate(("default", "brief", "long")):
            await insert_history(
                owner, History(day=day(days_ago), ids=IDS[index : index + 1], tenant=tenant)
            )

    await retention(pool, policies=policies).run_pass()

    rows = await owner.fetch(
        "SELECT tenant, array_agg(DISTINCT (scheduled_for AT TIME ZONE 'UTC')::date) AS days "
        "FROM runs GROUP BY tenant"
    )
    assert {row["tenant"]: row["days"] for row in rows} == {
        "default": [day(5), day(1)],
        "brief": [day(1)],
        "long": [day(50), day(5), day(1)],
    }
    assert await history_marks(owner) == {
        "": start(10),
        "brief": start(2),
        "long": start(60),
    }


async def history_marks(owner: asyncpg.Connection) -> dict[str, datetime]:
    return dict(await owner.fetch("SELECT tenant, removed_until FROM history_marks"))


@pytest.mark.requirement("S118")
async def test_archive_contains_each_removed_run_with_its_attempts_and_no_target(
    owner: asyncpg.Connection, pool: asyncpg.Pool, tmp_path: Path
) -> None:
    await store_schedules(pool, IDS, {"cron": "0 9 * * *"}, datetime.now(UTC))
    await insert_history(owner, History(day=day(11), ids=IDS, count=50, override=OVERRIDE))

    await retention(pool, archive_dir=tmp_path).run_pass()

    found = read_day(tmp_path, day(11))
    for part in found.parts:
        verify_part(tmp_path, found.day, part)
    runs = list(read_rows(tmp_path, found, "runs"))
    attempts = list(read_rows(tmp_path, found, "attempts"))
    assert (len(runs), len(attempts)) == (50, 50)
    assert {run["key"] for run in runs} == {str(each) for each in IDS}
    assert runs[0]["scheduled_for"].startswith(f"{day(11)}T00:00:00")
    assert {each["outcome"] for each in attempts} == {"succeeded"}
    folder = tmp_path / day(11).isoformat()
    assert {path.name for path in folder.iterdir()} == {
        "manifest.json",
        "runs-1.jsonl.gz",
        "attempts-1.jsonl.gz",
    }
    assert {path.stat().st_mode & 0o777 for path in folder.iterdir()} == {0o600}
    text = gzip.decompress((folder / "runs-1.jsonl.gz").read_bytes()).decode()
    assert "secret-text" not in text
    assert json.loads((folder / "manifest.json").read_bytes())["schema_version"] == 1
    assert not [each for each in await partitions(owner) if each.startswith("retired")]


STEPS: Final = (
    "before_detach",
    "after_detach",
    "after_lines",
    "after_files",
    "after_manifest",
    "after_record",
    "after_drop",
    "after_batch",
    "after_rows",
)


@pytest.mark.requirement("S118")
@pytest.mark.parametrize("step", STEPS)
async def test_pass_that_fails_at_a_step_is_continued_and_archives_each_run_once(
    owner: asyncpg.Connection, pool: asyncpg.Pool, tmp_path: Path, step: str
) -> None:
    await insert_history(owner, History(day=day(13), ids=IDS))
    await insert_history(owner, History(day=day(12), ids=IDS, state="dead"))
    await insert_dead_letter(owner, start(12), IDS[0])
    failpoint.arm(Failpoint(f"ticker.retention.{step}", "raise"))
    try:
        with pytest.raises(InjectedFailure):
            await retention(pool, archive_dir=tmp_path).run_pass()
    finally:
        failpoint.arm(None)

    assert await retention(pool, archive_dir=tmp_path).run_pass()

    assert await runs_by_day(owner) == {day(12): 1}
    keys = [
        (row["scheduled_for"], row["schedule_id"])
        for each in list_days(tmp_path)
        for row in read_rows(tmp_path, read_day(tmp_path, each), "runs")
    ]
    assert (len(keys), len(set(keys))) == (47, 47)
    for each in list_days(tmp_path):
        for part in read_day(tmp_path, each).parts:
            verify_part(tmp_path, each, part)
    assert not [each for each in await partitions(owner) if each.startswith("retired")]


async def test_removed_rows_wait_for_an_archive_that_is_not_writable(
    owner: asyncpg.Connection, pool: asyncpg.Pool, tmp_path: Path
) -> None:
    await insert_history(owner, History(day=day(11), ids=IDS))
    (tmp_path / day(11).isoformat()).write_text("a file instead of the directory of the day")

    with pytest.raises(ArchiveFault, match="not writable"):
        await retention(pool, archive_dir=tmp_path).run_pass()
    with pytest.raises(ArchiveFault, match="HAREBELL_ARCHIVE_DIR"):
        await retention(pool).run_pass()

    (tmp_path / day(11).isoformat()).unlink()
    await retention(pool, archive_dir=tmp_path).run_pass()
    assert read_day(tmp_path, day(11)).count("runs") == 24


async def test_part_with_a_row_that_the_archive_lacks_is_not_dropped(
    owner: asyncpg.Connection, pool: asyncpg.Pool, tmp_path: Path
) -> None:
    await insert_history(owner, History(day=day(11), ids=IDS))
    failpoint.arm(Failpoint("ticker.retention.after_record", "raise"))
    try:
        with pytest.raises(InjectedFailure):
            await retention(pool, archive_dir=tmp_path).run_pass()
    finally:
        failpoint.arm(None)
    await owner.execute("UPDATE archive_parts SET runs = runs - 1")
    await insert_history(owner, History(day=day(12), ids=IDS))

    with pytest.raises(PartFault, match="must contain 24 rows"):
        await retention(pool, archive_dir=tmp_path).run_pass()
    assert await runs_by_day(owner) == {}
    assert read_day(tmp_path, day(12)).count("runs") == 24
    assert await retained_parts(owner) == {f"{day(11):%Y%m%d}_1"}

    await owner.execute("UPDATE archive_parts SET runs = runs + 1 WHERE day = $1", day(11))
    assert await retention(pool, archive_dir=tmp_path).run_pass()
    assert await retained_parts(owner) == set()


@pytest.mark.requirement("S118")
async def test_ticker_without_an_archive_removes_nothing_while_another_archives(
    owner: asyncpg.Connection, pool: asyncpg.Pool, tmp_path: Path
) -> None:
    await retention(pool, archive_dir=tmp_path).run_pass()
    await insert_history(owner, History(day=day(11), ids=IDS))

    with pytest.raises(ArchiveFault, match="this ticker has no HAREBELL_ARCHIVE_DIR"):
        await retention(pool).run_pass()

    assert await runs_by_day(owner) == {day(11): 24}
    await owner.execute("UPDATE maintenance_leases SET lease_until = now() - interval '1 s'")
    assert await retention(pool).run_pass()
    assert await runs_by_day(owner) == {}


async def test_range_of_skipped_times_leaves_its_day_after_its_end_has_its_age(
    owner: asyncpg.Connection, pool: asyncpg.Pool
) -> None:
    await insert_history(owner, History(day=day(12), ids=IDS[:1], state="skipped"))
    extend = "UPDATE runs SET range_until = $2 WHERE scheduled_for = $1"
    await owner.execute(extend, start(12), start(9))
    await retention(pool).run_pass()
    assert await runs_by_day(owner) == {day(12): 1}

    await owner.execute(extend, start(12), start(10) - timedelta(seconds=1))
    await owner.execute("UPDATE examined_days SET examined_at = now() - interval '1 day'")
    await retention(pool).run_pass()

    assert await runs_by_day(owner) == {}


@pytest.mark.requirement("S118")
async def test_longer_retention_of_a_tenant_does_not_bring_back_its_removed_history(
    owner: asyncpg.Connection, pool: asyncpg.Pool
) -> None:
    longer = {"tenants": {"acme": {"retention": {"runs": "60d"}}}}
    await retention(pool).run_pass()
    await retention(pool, policies=longer).run_pass()
    assert await history_marks(owner) == {"": start(10), "acme": start(10)}

    await retention(pool, run_retention="5d").run_pass()

    assert await history_marks(owner) == {"": start(5), "acme": start(5)}


@pytest.mark.unshifted
async def test_lease_is_renewed_while_a_statement_lasts_longer(
    owner: asyncpg.Connection, pool: asyncpg.Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LEASE", timedelta(seconds=2))
    await insert_history(owner, History(day=day(11), ids=IDS))
    failpoint.arm(Failpoint("ticker.retention.after_detach", "sleep", 5.0))
    try:
        first = asyncio.create_task(retention(pool).run_pass())
        await until(lambda: owner.fetchval("SELECT count(*) FROM archive_parts"))
        await asyncio.sleep(3)
        assert not await retention(pool).run_pass()
        assert await first
    finally:
        failpoint.arm(None)


async def test_second_ticker_does_nothing_during_a_pass(
    owner: asyncpg.Connection, pool: asyncpg.Pool
) -> None:
    await insert_history(owner, History(day=day(11), ids=IDS))
    failpoint.arm(Failpoint("ticker.retention.before_detach", "sleep", 2.0))
    try:
        first = asyncio.create_task(retention(pool).run_pass())
        await until(lambda: owner.fetchval("SELECT count(*) FROM maintenance_leases"))
        assert not await retention(pool).run_pass()
        assert await first
    finally:
        failpoint.arm(None)

    assert not await retention(pool).run_pass(every=timedelta(hours=1))
    assert await retention(pool).run_pass()


@pytest.mark.unshifted
async def test_removal_of_a_partition_in_use_is_repeated(
    owner: asyncpg.Connection, pool: asyncpg.Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lock of a reader delays the removal, and the removal delays no statement for long."""
    monkeypatch.setattr(module, "DETACH_PAUSE", 0.05)
    await insert_history(owner, History(day=day(11), ids=IDS))
    reader = owner.transaction()
    await reader.start()
    await owner.fetchval("SELECT count(*) FROM runs")
    task = asyncio.create_task(retention(pool).run_pass())
    longest = 0.0
    for _ in range(40):
        began = asyncio.get_running_loop().time()
        await pool.execute("UPDATE runs SET seq = seq WHERE scheduled_for = $1", start(0))
        longest = max(longest, asyncio.get_running_loop().time() - began)
        await asyncio.sleep(0.02)
    assert not task.done()
    await reader.rollback()
    await task

    assert await runs_by_day(owner) == {}
    assert longest < 2.0
