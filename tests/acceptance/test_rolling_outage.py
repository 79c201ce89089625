"""The database away for longer than a missed run may be late, on servers of this file's own."""

import asyncio
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from itertools import pairwise

import asyncpg
import pytest
from tests.acceptance.faults import until_called
from tests.acceptance.recording_target import Call, Target
from tests.acceptance.stack import Stack, Tenant, time_in, now
from tests.rig.servers import Servers, private_servers

from harebell.dev.plan import ServiceCounts, name_of

pytestmark = [pytest.mark.broker, pytest.mark.postgres, pytest.mark.chaos]

AWAY = 300.0  # seconds
MISSED = 60.0  # seconds after which an instant that is found counts as missed
EVERY = 10  # seconds between the runs of a schedule
SETTLED = 2.0  # seconds after the database went: what was claimed by then may still start
BACKLOG = 60.0  # seconds after it came back, until nothing is owed
HORIZON = "5s"  # so that what comes due meanwhile is not staged yet
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
async def test_a_long_outage_of_the_database_crashes_nothing_and_catch_up_is_as_asked(
    stack: Stack, target: Target, record_property: Callable[[str, object], None]
) -> None:
    before = living(stack)
    end = time_in(AWAY + 60)
    async with stack.tenant("away") as tenant:
        for mode in MODES:
            await put(tenant, target, mode, end)
            await until_called(target, mode)
    left_at, back_at = await take_away(stack)
    async with stack.tenant("away") as tenant:
        await until_past(end)
        runs = {mode: await until_decided(tenant, mode, end) for mode in MODES}

    calls = {mode: target.calls(mode) for mode in MODES}
    assert living(stack) == before
    for mode in MODES:
        record_property(mode, told(calls[mode], runs[mode]))
        assert not started(calls[mode], left_at + timedelta(seconds=SETTLED), back_at)
        assert_whole(calls[mode], runs[mode], end)
    skipped = {mode: sum(run["range_count"] or 1 for run in skips(runs[mode])) for mode in MODES}
    assert skipped["all"] == 0
    assert skipped["none"] == skipped["one"] + 1 > 1
    assert max(call.late for call in calls["all"]) > MISSED
    assert max(call.late for call in calls["none"]) < MISSED + BACKLOG


def living(stack: Stack) -> dict[str, int | None]:
    """The process ids of all services."""
    found = {name: stack.services.process(name) for name in (name_of(*m) for m in PAIRS.members())}
    return {name: None if each is None else each.pid for name, each in found.items()}


async def put(tenant: Tenant, target: Target, mode: str, end: datetime) -> None:
    when = {"every": f"{EVERY}s", "start": time_in(1).isoformat(), "end": end.isoformat()}
    await tenant.put(mode, when, target.http(mode), catch_up={"mode": mode})


async def take_away(stack: Stack) -> tuple[datetime, datetime]:
    """When it left, and when it came back."""
    assert stack.servers.private is not None
    database = stack.servers.private.database
    left_at = now()
    await asyncio.to_thread(database.stop)
    await asyncio.sleep(AWAY)
    back_at = now()
    await asyncio.to_thread(database.start)
    return left_at, back_at


async def until_past(moment: datetime) -> None:
    await asyncio.sleep(max(0.0, (moment - now()).total_seconds()))


async def until_decided(tenant: Tenant, mode: str, end: datetime) -> list[asyncpg.Record]:
    """The rows of that schedule, when none is open and no instant is left to decide."""
    schedule = await tenant.harebell.schedule(key=mode)
    async with asyncio.timeout(BACKLOG):
        while True:
            runs = [r for r in await tenant.runs() if str(r["schedule_id"]) == str(schedule.id)]
            if covered(runs) >= end - timedelta(seconds=EVERY) and not [
                run for run in runs if run["finished_at"] is None
            ]:
                return runs
            await asyncio.sleep(1)


def covered(runs: list[asyncpg.Record]) -> datetime:
    last: datetime = max(run["range_until"] or run["scheduled_for"] for run in runs)
    return last


def skips(runs: list[asyncpg.Record]) -> list[asyncpg.Record]:
    return [run for run in runs if run["state"] == "skipped"]


def started(calls: list[Call], since: datetime, until: datetime) -> list[Call]:
    return [call for call in calls if since < call.started_at < until]


def assert_whole(calls: list[Call], runs: list[asyncpg.Record], end: datetime) -> None:
    """Every instant has run once or is accounted for as skipped, and none is missing between."""
    ran = [run for run in runs if run["state"] == "succeeded"]
    assert len(ran) + len(skips(runs)) == len(runs)
    assert {run["reason"] for run in skips(runs)} <= {"catch_up"}
    assert sorted(call.scheduled_for for call in calls) == [run["scheduled_for"] for run in ran]
    assert {run["attempt"] for run in ran} == {1}
    for former, later in pairwise(runs):
        reached = former["range_until"] or former["scheduled_for"]
        assert later["scheduled_for"] - reached == timedelta(seconds=EVERY)
    assert covered(runs) <= end


def told(calls: list[Call], runs: list[asyncpg.Record]) -> str:
    worst = max(call.late for call in calls)
    return f"{len(calls)} ran, {len(skips(runs))} rows of skipped_times; {worst:.1f} s late at most"
