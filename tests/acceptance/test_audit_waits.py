"""`harebell audit --watch` while a breaker, a pause, a rate limit or maintenance delays runs."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from tests.acceptance.recording_target import Target
from tests.acceptance.stack import Stack, Tenant, time_in
from tests.acceptance.test_audit import ECHO, EVERY_SECOND, audit_command, environment
from tests.acceptance.test_audit_watch import ping_server
from tests.acceptance.test_breaker import PERSISTENT, SETTINGS, downstream, until_action
from tests.rig.command_line import end
from tests.rig.polling import until

pytestmark = [pytest.mark.broker, pytest.mark.postgres, pytest.mark.long]

LATE_AFTER = 12.0  # seconds; also the bound of a run that nothing delays
WAIT = LATE_AFTER + 6  # seconds of each delay
LONG = 240.0  # seconds, for the runs after all delays
FAILURE_PATH = "/ping/fail"
OPEN_POOL, NO_POOL = "default", "nobody"
NOW = {"now": True}
RATE = 5  # runs a second
RATE_BACKLOG = 200
_OVERDUE = """
SELECT count(*) FROM runs
WHERE state IN ('staged', 'retrying') AND due_at < now() - interval '5 seconds'
"""
LIMIT = {"per": "schedule", "starts": 1, "within": f"{WAIT:g}s"}


@asynccontextmanager
async def watch(stack: Stack, *further: str) -> AsyncIterator[list[tuple[str, str]]]:
    """Run the watch and yield the paths and the texts of its pings."""
    with ping_server() as (url, pings):
        arguments = ["--all-tenants", "--watch", "--every", "500ms", "--ping-url", url, *further]
        process = await asyncio.create_subprocess_exec(
            *audit_command(*arguments, "--late-after", f"{LATE_AFTER:g}s"),
            env=environment(stack),
            stderr=asyncio.subprocess.DEVNULL,
        )
        try:
            yield pings
        finally:
            await end(process)


async def delay_by_breaker(tenant: Tenant, target: Target) -> None:
    """Let a target fail until its breaker has deferred runs for longer than the bound."""
    down = target.http("till", broken="the-till")
    for number in range(8):
        await tenant.put(f"failing-{number}", NOW, down, retry=PERSISTENT)
    await until_action(tenant, downstream(target), "open")
    for number in range(5):
        await tenant.put(f"deferred-{number}", NOW, down, retry=PERSISTENT)
    await asyncio.sleep(WAIT)
    target.fix("the-till")


async def delay_by_maintenance(tenant: Tenant, target: Target) -> None:
    """Force a breaker open, and pause all schedules with a tag. Both end after a time."""
    name = downstream(target)
    await tenant.harebell.open_breaker(name, until=time_in(WAIT), note="maintenance")
    await until_action(tenant, name, "open")
    for number in range(5):
        await tenant.put(f"maintained-{number}", NOW, target.http("shop"))
    when, more = {"every": "1s", "times": 60}, {"tags": ["shop"], "catch_up": {"mode": "all"}}
    await tenant.put("shop", when, ECHO, **more)
    paused = await tenant.harebell.pause_all({"tag": "shop"}, request_id="maintenance")
    assert len(paused.changed) == 1
    await asyncio.sleep(WAIT)
    await tenant.harebell.resume_all(request_id="end", bulk_operation_id="maintenance")


async def delay_by_pause(tenant: Tenant) -> None:
    await tenant.put("paused", EVERY_SECOND, ECHO, catch_up={"mode": "all"})
    await tenant.put("once", {"after": "2s"}, ECHO)
    for key in ("paused", "once"):
        await tenant.harebell.pause(key=key)
    await asyncio.sleep(WAIT)
    for key in ("paused", "once"):
        await tenant.harebell.resume(key=key)


async def delay_by_policies(tenant: Tenant, target: Target) -> None:
    """Let a run wait for a rate limit, and another run for an overlap slot."""
    slow = target.http("slow", sleep=WAIT)
    await tenant.put("limited", {"every": "1d"}, ECHO, rate_limit=LIMIT)
    await tenant.put("slow", {"every": "1d"}, slow, overlap="queue", timeout="60s")
    for key in ("limited", "slow"):
        for _ in range(2):
            await tenant.harebell.trigger(key=key)
            await asyncio.sleep(0.1)  # each trigger has its own scheduled time


@pytest.mark.requirement("ASK-11", "S113")
async def test_watch_is_clean_through_each_delay_and_still_finds_a_stuck_run(
    own_stack: Stack, target: Target, tmp_path: Path
) -> None:
    await asyncio.to_thread(lambda: own_stack.start(None, **SETTINGS))
    with Target.open(tmp_path / "calls.jsonl") as shop:
        async with own_stack.tenant("waits") as tenant, watch(own_stack) as pings:
            await asyncio.gather(
                delay_by_breaker(tenant, target),
                delay_by_maintenance(tenant, shop),
                delay_by_pause(tenant),
                delay_by_policies(tenant, shop),
            )
            one_shot = 8 + 5 + 5 + 1 + 4
            await tenant.until_runs(one_shot + 2 * int(WAIT), "succeeded", within=LONG)
            await until(lambda: has_no_overdue_run(tenant), within=LONG, what="the last late start")
            clean = list(pings)

            await tenant.harebell.open_breaker(downstream(shop), note="maintenance")
            await until_action(tenant, downstream(shop), "open")
            await tenant.put("held", NOW, shop.http("shop"))
            await tenant.put("stuck", NOW, ECHO, pool=NO_POOL)
            failure = await until(lambda: failure_of(pings), within=LONG, what="a failure ping")

    assert [text for path, text in clean if path == FAILURE_PATH] == []
    assert len(clean) > 10
    assert failure is not None
    assert "The audit found 1 stuck." in failure
    assert f"The component pool {NO_POOL} has not worked since" in failure
    assert f"pool {OPEN_POOL}" not in failure


@pytest.mark.requirement("S113", "P6")
async def test_watch_knows_the_runs_that_wait_for_the_rate_of_their_tenant(
    own_stack: Stack, tmp_path: Path
) -> None:
    """The runs of one tenant need 40 s at its rate, and a watch without the quotas reports them."""
    policies = tmp_path / "tenants.yml"
    policies.write_text(f"tenants: {{quick: {{quotas: {{runs_per_second: {RATE}}}}}}}\n")
    quotas = {"HAREBELL_TENANTS_FILE": str(policies)}
    await asyncio.to_thread(lambda: own_stack.start(None, **SETTINGS, **quotas))
    async with (
        own_stack.tenant("quick") as tenant,
        watch(own_stack, "--tenants-file", str(policies)) as informed,
        watch(own_stack) as uninformed,
    ):
        for number in range(RATE_BACKLOG):
            await tenant.put(f"quick-{number}", NOW, ECHO)
        await until(lambda: failure_of(uninformed), within=LONG, what="a report of late runs")
        await tenant.until_runs(RATE_BACKLOG, "succeeded", within=LONG)
        seen = len(informed)
        await until(lambda: has_pings(informed, seen + 2), within=LONG, what="two further pings")

    assert [text for path, text in informed if path == FAILURE_PATH] == []


async def has_pings(pings: list[tuple[str, str]], count: int) -> bool:
    return len(pings) >= count


async def has_no_overdue_run(tenant: Tenant) -> bool:
    overdue: int = await tenant.ledger.fetchval(_OVERDUE)
    return overdue == 0


async def failure_of(pings: list[tuple[str, str]]) -> str | None:
    """Return the first failure that counts a run. A pool may be silent in an earlier one."""
    texts = (text for path, text in pings if path == FAILURE_PATH)
    return next((text for text in texts if "stuck" in text), None)
