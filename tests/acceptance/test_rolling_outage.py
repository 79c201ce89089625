"""An outage of the database longer than the limit for missed runs, on separate servers."""

import asyncio
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from itertools import pairwise

import asyncpg
import pytest
from tests.acceptance.faults import until_called
from tests.acceptance.recording_target import Call, Target
from tests.acceptance.stack import Stack, Tenant, now, time_in
from tests.rig.servers import Servers, private_servers

from harebell.dev.plan import ServiceCounts, name_of

pytestmark = [pytest.mark.broker, pytest.mark.postgres, pytest.mark.chaos]

OUTAGE = 300.0  # seconds
MISSED_AFTER = 60.0  # seconds after which a scheduled time counts as missed
INTERVAL = 10  # seconds between the runs of a schedule
START_GRACE = 2.0  # seconds after the stop in which a claimed run may still start
BACKLOG_TIMEOUT = 60.0  # seconds after the return until every run has ended
HORIZON = "5s"  # short, so that the runs of the outage are not staged before the outage
PAIRS = ServiceCounts(tickers=2, dispatchers=2, executors=2)
MODES = ("none", "one", "all")


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    private = private_servers(tmp_path_factory.mktemp("servers-away"))
    try:
        private.start()
        servers = Servers(private.amqp_url, private.database_url, private)
        with Stack.open(servers, tmp_path_factory.mktemp("away")) as opened:
            opened.start(PAIRS, HAREBELL_HORIZON=HORIZON)
            yield opened
    finally:
        private.discard()


@pytest.mark.requirement("S91")
async def test_services_survive_a_long_database_outage_and_apply_the_catch_up_policy(
    stack: Stack, target: Target, record_property: Callable[[str, object], None]
) -> None:
    before = process_ids(stack)
    end = time_in(OUTAGE + 60)
    async with stack.tenant("away") as tenant:
        for mode in MODES:
            await put(tenant, target, mode, end)
            await until_called(target, mode)
    stopped_at, returned_at = await interrupt_database(stack)
    async with stack.tenant("away") as tenant:
        await sleep_until(end)
        runs = {mode: await until_complete(tenant, mode, end) for mode in MODES}

    calls = {mode: target.calls(mode) for mode in MODES}
    assert process_ids(stack) == before
    for mode in MODES:
        record_property(mode, summary(calls[mode], runs[mode]))
        assert not started_between(
            calls[mode], stopped_at + timedelta(seconds=START_GRACE), returned_at
        )
        assert_no_gap(calls[mode], runs[mode], end)
    skipped = {
        mode: sum(run["range_count"] or 1 for run in skipped_rows(runs[mode])) for mode in MODES
    }
    assert skipped["all"] == 0
    assert skipped["none"] == skipped["one"] + 1 > 1
    assert max(call.late for call in calls["all"]) > MISSED_AFTER
    assert max(call.late for call in calls["none"]) < MISSED_AFTER + BACKLOG_TIMEOUT


def process_ids(stack: Stack) -> dict[str, int | None]:
    """Return the process ids of all services."""
    found = {name: stack.services.process(name) for name in (name_of(*m) for m in PAIRS.members())}
    return {name: None if each is None else each.pid for name, each in found.items()}


async def put(tenant: Tenant, target: Target, mode: str, end: datetime) -> None:
    when = {"every": f"{INTERVAL}s", "start": time_in(1).isoformat(), "end": end.isoformat()}
    await tenant.put(mode, when, target.http(mode), catch_up={"mode": mode})


async def interrupt_database(stack: Stack) -> tuple[datetime, datetime]:
    """Stop the database, start it after OUTAGE seconds and return both times."""
    assert stack.servers.private is not None
    database = stack.servers.private.database
    stopped_at = now()
    await asyncio.to_thread(database.stop)
    await asyncio.sleep(OUTAGE)
    returned_at = now()
    await asyncio.to_thread(database.start)
    return stopped_at, returned_at


async def sleep_until(time: datetime) -> None:
    await asyncio.sleep(max(0.0, (time - now()).total_seconds()))


async def until_complete(tenant: Tenant, mode: str, end: datetime) -> list[asyncpg.Record]:
    """Wait until the rows of the schedule reach `end` and none is open, and return them."""
    schedule = await tenant.harebell.schedule(key=mode)
    async with asyncio.timeout(BACKLOG_TIMEOUT):
        while True:
            runs = [r for r in await tenant.runs() if str(r["schedule_id"]) == str(schedule.id)]
            if last_covered(runs) >= end - timedelta(seconds=INTERVAL) and not [
                run for run in runs if run["finished_at"] is None
            ]:
                return runs
            await asyncio.sleep(1)


def last_covered(runs: list[asyncpg.Record]) -> datetime:
    last: datetime = max(run["range_until"] or run["scheduled_for"] for run in runs)
    return last


def skipped_rows(runs: list[asyncpg.Record]) -> list[asyncpg.Record]:
    return [run for run in runs if run["state"] == "skipped"]


def started_between(calls: list[Call], since: datetime, until: datetime) -> list[Call]:
    return [call for call in calls if since < call.started_at < until]


def assert_no_gap(calls: list[Call], runs: list[asyncpg.Record], end: datetime) -> None:
    """Assert that each scheduled time has one call or is skipped, without a gap."""
    ran = [run for run in runs if run["state"] == "succeeded"]
    assert len(ran) + len(skipped_rows(runs)) == len(runs)
    assert {run["reason"] for run in skipped_rows(runs)} <= {"missed"}
    assert sorted(call.scheduled_for for call in calls) == [run["scheduled_for"] for run in ran]
    assert {run["attempt"] for run in ran} == {1}
    for former, later in pairwise(runs):
        reached = former["range_until"] or former["scheduled_for"]
        assert later["scheduled_for"] - reached == timedelta(seconds=INTERVAL)
    assert last_covered(runs) <= end


def summary(calls: list[Call], runs: list[asyncpg.Record]) -> str:
    worst = max(call.late for call in calls)
    return f"{len(calls)} ran, {len(skipped_rows(runs))} skipped rows; {worst:.1f} s late at most"
