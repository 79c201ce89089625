"""Time zone data that change between two starts of a ticker."""

import os
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from tests.acceptance.stack import Stack
from tests.rig.polling import until
from tests.rig.servers import Servers

from harebell.dev.plan import ServiceCounts, ServiceKind

pytestmark = pytest.mark.long

ZONE = "Europe/London"
SYSTEM_ZONES = Path("/usr/share/zoneinfo")


@pytest.fixture
def stack(servers: Servers, tmp_path: Path) -> Iterator[Stack]:
    with Stack.open(servers, tmp_path) as opened:
        yield opened


def write_zone(folder: Path, version: str, *, source: str) -> str:
    """Write zone data that give London the time of another zone, and return PYTHONTZPATH."""
    (folder / "Europe").mkdir(parents=True)
    (folder / ZONE).write_bytes((SYSTEM_ZONES / source).read_bytes())
    (folder / "+VERSION").write_text(f"{version}\n")
    return os.pathsep.join([str(folder), str(SYSTEM_ZONES)])


async def test_changed_time_zone_data_move_the_runs_that_are_not_staged(
    stack: Stack, tmp_path: Path
) -> None:
    before = write_zone(tmp_path / "before", "2026a", source="Europe/London")
    after = write_zone(tmp_path / "after", "2026b", source="Europe/Berlin")
    stack.start(ServiceCounts(executors=1), PYTHONTZPATH=before)
    async with stack.tenant("travellers") as tenant:
        when = {"cron": "0 12 1 1 *", "timezone": ZONE}
        schedule = await tenant.put("noon", when, {"task": {"name": "harebell.echo"}})
        query = "SELECT next_at FROM schedule_state WHERE schedule_id = $1"
        planned = await tenant.ledger.fetchval(query, schedule)

        stack.stop("ticker-1")
        stack.start_one(ServiceKind.TICKER, PYTHONTZPATH=after)

        async def is_moved() -> bool:
            next_at = await tenant.ledger.fetchval(query, schedule)
            return bool(next_at == planned - timedelta(hours=1))

        assert await until(is_moved, what="the new time of the schedule")
        version = await tenant.ledger.fetchval("SELECT version FROM tzdata_version")

    assert version == "2026b"
