"""The only ticker of a stack is killed at each step of an archive and of a removal."""

from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import asyncpg
import pytest
from tests.acceptance.faults import start, start_with_kill
from tests.acceptance.recording_target import Target
from tests.acceptance.stack import Stack, now
from tests.fakes.history import History, insert_dead_letter, insert_history
from tests.fakes.stored_schedules import schedule_ids
from tests.rig.polling import until

from harebell.audit.audit import Scope, run_audit
from harebell.audit.store import connect_read_only
from harebell.dev.plan import ServiceCounts, ServiceKind
from harebell.runtime.archive import list_days, read_day, read_rows, verify_part
from harebell.ticker.retention import TASK

pytestmark = [
    pytest.mark.broker,
    pytest.mark.postgres,
    pytest.mark.long,
    pytest.mark.requirement("S118"),
]

STEPS: Final = (
    "before_detach",
    "after_detach",
    "after_batch",
    "after_lines",
    "after_files",
    "after_manifest",
    "after_record",
    "after_drop",
    "after_rows",
)
TICKER: Final = "ticker-1"
IDS: Final = tuple(schedule_ids(3))
RUNS: Final = 240  # of each old day
STEP_TIMEOUT: Final = 90.0  # seconds until the killed step and until a pass, on a busy machine
TENANT: Final = "kept"
Key = tuple[datetime, Any]

EXPIRE_LEASE: Final = """
UPDATE maintenance_leases SET lease_until = now() - interval '1 second', finished_at = NULL
"""
# The archive has a row too, and never ends.
HAS_ENDED: Final = "SELECT finished_at IS NOT NULL FROM maintenance_leases WHERE task = $1"
KEYS: Final = "SELECT scheduled_for, schedule_id FROM runs WHERE scheduled_for < $1"


def old_day(today: date, number: int) -> date:
    """Return one of the days that the retention of ten days removes."""
    return today - timedelta(days=12 + number)


def start_of(day: date) -> datetime:
    return datetime.combine(day, datetime.min.time(), UTC)


async def insert_work(
    owner: asyncpg.Connection, whole: date, mixed: date
) -> tuple[set[Key], set[Key]]:
    """Insert a day that leaves as a whole and a day of which three runs stay.

    Return the keys of all runs and the keys of the runs that stay.
    """
    await insert_history(owner, History(day=whole, ids=IDS, count=RUNS))
    await insert_history(owner, History(day=mixed, ids=IDS, count=RUNS, state="dead"))
    rows = await owner.fetch(
        "SELECT scheduled_for, schedule_id FROM runs WHERE scheduled_for >= $1 "
        "AND scheduled_for < $2 ORDER BY 1 LIMIT 3",
        start_of(mixed),
        start_of(mixed) + timedelta(days=1),
    )
    (first, id_), (unresolved, _), (ended, _) = rows
    await insert_dead_letter(owner, first, id_)
    change = "UPDATE runs SET state = $2, finished_at = $3 WHERE scheduled_for = $1"
    await owner.execute(change, unresolved, "unresolved", unresolved)
    await owner.execute(change, ended, "succeeded", datetime.now(UTC))
    keys = await owner.fetch(
        "SELECT scheduled_for, schedule_id FROM runs WHERE scheduled_for >= $1 "
        "AND scheduled_for < $2",
        start_of(mixed),
        start_of(whole) + timedelta(days=1),
    )
    return {tuple(row) for row in keys}, {tuple(row) for row in rows}


def archived_keys(root: Path) -> list[Key]:
    """Return the key of each archived run, after a check of every count and checksum."""
    keys: list[Key] = []
    for day in list_days(root):
        record = read_day(root, day)
        for part in record.parts:
            verify_part(root, day, part)
        rows = list(read_rows(root, record, "runs"))
        assert len(rows) == record.count("runs")
        keys += [(datetime.fromisoformat(row["scheduled_for"]), row["schedule_id"]) for row in rows]
    return keys


async def test_ticker_killed_at_each_step_of_a_removal_loses_no_run(
    own_stack: Stack, target: Target, tmp_path: Path
) -> None:
    archive = tmp_path / "archive"
    archive.mkdir()
    settings = {"HAREBELL_RUN_RETENTION": "10d", "HAREBELL_ARCHIVE_DIR": str(archive)}
    own_stack.start(ServiceCounts(), **settings)
    owner = await asyncpg.connect(own_stack.database_url, server_settings={"timezone": "UTC"})
    today = datetime.now(UTC).date()
    present: set[Key] = set()
    kept: set[Key] = set()

    async def is_dead() -> bool:
        return own_stack.services.process(TICKER) is None

    async def is_finished() -> bool:
        return bool(await owner.fetchval(HAS_ENDED, TASK))

    try:
        async with own_stack.tenant(TENANT) as tenant:
            began = now()
            await tenant.put("live", {"every": "1s"}, target.http("ok"))
            own_stack.kill(TICKER)
            for number, step in enumerate(STEPS):
                whole, mixed = old_day(today, 2 * number), old_day(today, 2 * number + 1)
                added, staying = await insert_work(owner, whole, mixed)
                present, kept = present | added, kept | staying
                await owner.execute(EXPIRE_LEASE)  # as after 30 s and after one hour
                point = f"ticker.retention.{step}"
                await start_with_kill(own_stack, ServiceKind.TICKER, 1, point, **settings)
                await until(is_dead, within=STEP_TIMEOUT, what=f"the kill at {step}")
            await owner.execute(EXPIRE_LEASE)
            await start(own_stack, ServiceKind.TICKER, 1, **settings)
            await until(is_finished, within=STEP_TIMEOUT, what="a pass of the retention")

            newest = start_of(old_day(today, 0)) + timedelta(days=1)
            left = {tuple(row) for row in await owner.fetch(KEYS, newest)}
            retired = await owner.fetchval(
                "SELECT count(*) FROM pg_class WHERE relkind = 'r' AND relname LIKE 'retired%'"
            )
            ended = now() - timedelta(seconds=5)
            async with connect_read_only(own_stack.database_url) as reader:
                report = await run_audit(reader, began, ended, scope=Scope(tenant=TENANT))
    finally:
        await owner.close()

    archived = archived_keys(archive)
    assert left == kept
    assert len(archived) == len(set(archived))
    assert {(at, str(id_)) for at, id_ in archived} == {
        (at, str(id_)) for at, id_ in present - kept
    }
    assert retired == 0
    assert report.counts == {}
    assert report.expected == report.recorded > len(STEPS)
