"""Zone data that change between two lives of a ticker."""

import os
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from tests.acceptance.stack import Stack, until
from tests.rig.servers import Servers

from harebell.dev.plan import ServiceCounts, ServiceKind

ZONE = "Europe/London"
SYSTEM = Path("/usr/share/zoneinfo")


@pytest.fixture
def alone(servers: Servers, tmp_path: Path) -> Iterator[Stack]:
    with Stack.open(servers, tmp_path) as opened:
        yield opened


def zones(folder: Path, release: str, *, as_in: str) -> str:
    """Data in which London keeps the time of another place."""
    (folder / "Europe").mkdir(parents=True)
    (folder / ZONE).write_bytes((SYSTEM / as_in).read_bytes())
    (folder / "+VERSION").write_text(f"{release}\n")
    return os.pathsep.join([str(folder), str(SYSTEM)])


async def test_changed_zone_data_move_what_is_not_handed_over_yet(
    alone: Stack, tmp_path: Path
) -> None:
    before = zones(tmp_path / "before", "2026a", as_in="Europe/London")
    after = zones(tmp_path / "after", "2026b", as_in="Europe/Berlin")
    alone.start(ServiceCounts(executors=1), PYTHONTZPATH=before)
    async with alone.tenant("travellers") as tenant:
        when = {"cron": "0 12 1 1 *", "timezone": ZONE}
        schedule = await tenant.put("noon", when, {"task": {"name": "harebell.echo"}})
        query = "SELECT next_at FROM schedule_state WHERE schedule_id = $1"
        planned = await tenant.ledger.fetchval(query, schedule)

        alone.stop("ticker-1")
        alone.start_one(ServiceKind.TICKER, PYTHONTZPATH=after)

        async def moved() -> bool:
            next_at = await tenant.ledger.fetchval(query, schedule)
            return bool(next_at == planned - timedelta(hours=1))

        assert await until(moved, what="noon of Berlin")
        release = await tenant.ledger.fetchval("SELECT version FROM tzdata_version")

    assert release == "2026b"
