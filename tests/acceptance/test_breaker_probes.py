"""Circuit breakers with little traffic on a running stack: probes, events and replay jobs."""

import asyncio
import re
from collections.abc import Iterator
from typing import Any

import pytest
from tests.acceptance.recording_target import Target
from tests.acceptance.stack import Stack, Tenant
from tests.acceptance.test_breaker import breaker_events, until_action
from tests.rig.polling import until
from tests.rig.servers import Servers

from harebell.contract.views import ReplayJobWait
from harebell.dev.plan import ServiceCounts, ServiceKind, name_of
from harebell.runtime.settings import DispatcherSettings

pytestmark = [pytest.mark.broker, pytest.mark.postgres, pytest.mark.long]

OPEN_DURATION = 2.0  # seconds
# The number of failures is the default, and twenty attempts within a minute do not occur.
FAILURES = DispatcherSettings.model_fields["breaker_consecutive_failures"].default
SETTINGS = {
    "HAREBELL_BREAKER_MODE": "auto",
    "HAREBELL_BREAKER_MIN_CALLS": "1000",
    "HAREBELL_BREAKER_OPEN_DURATION": f"{OPEN_DURATION:g}s",
    "HAREBELL_BREAKER_HALF_OPEN_CALLS": "1",
}
LONG_TIMEOUT = 120.0  # seconds; a deferred ticket returns within half a minute
# The breaker opens before the first retry, so that every later attempt is a probe.
RETRY_WAIT = {"base": "5s", "factor": 1, "cap": "5s", "jitter": "none"}
MAX_ATTEMPTS = 2
PROBES = 2 * FAILURES  # failed ones, so that a run has more attempts than its policy allows

FIND_FAILED_PROBES = """
SELECT count(*) FROM attempts JOIN schedules ON id = schedule_id
WHERE tenant = $1 AND is_failed_probe
"""


@pytest.fixture(scope="module")
def stack(servers: Servers, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    with Stack.open(servers, tmp_path_factory.mktemp("probes")) as stack:
        stack.start(ServiceCounts(), **SETTINGS)
        yield stack


def downstream(target: Target) -> str:
    return f"127.0.0.1:{target.port}"


async def until_failed_probes(tenant: Tenant, count: int) -> None:
    async def is_reached() -> bool:
        found: int = await tenant.ledger.fetchval(FIND_FAILED_PROBES, tenant.name)
        return found >= count

    await until(is_reached, within=LONG_TIMEOUT, what=f"{count} failed probes")


async def put_failing(tenant: Tenant, target: Target, **retry: Any) -> None:
    for number in range(FAILURES):
        down = target.http("down", broken="down")
        await tenant.put(f"run-{number}", {"now": True}, down, retry=retry)


@pytest.mark.requirement("S113")
async def test_breaker_opens_after_few_failures_and_failed_probes_use_no_attempt(
    stack: Stack, target: Target
) -> None:
    name = downstream(target)
    async with stack.tenant("few") as tenant, breaker_events(stack) as events:
        await put_failing(tenant, target, max_attempts=MAX_ATTEMPTS, backoff=RETRY_WAIT)
        await until_action(tenant, name, "open")
        (shown,) = [each for each in await tenant.harebell.breakers() if each.downstream == name]
        await until_failed_probes(tenant, PROBES)
        dead = await tenant.runs("dead")
        target.fix("down")
        runs = await tenant.until_runs(FAILURES, "succeeded", within=LONG_TIMEOUT)
        probed = max(runs, key=lambda run: run["failed_probes"] or 0)
        run_id = f"{probed['schedule_id']}@{probed['scheduled_for']:%Y%m%dT%H%M%S}"
        run_id += f"{probed['scheduled_for'].microsecond // 1000:03d}Z"
        detail = await tenant.harebell.run(run_id)

    assert dead == []
    assert (shown.failed, shown.attempts, shown.reason) == (FAILURES, FAILURES, CONSECUTIVE)
    assert shown.since is not None
    assert shown.next_probe_at is not None
    assert (shown.next_probe_at - shown.since).total_seconds() == OPEN_DURATION
    opened = next(each for each in events.received if each["downstream"] == name)
    assert re.fullmatch(OPENED.format(name=re.escape(name)), opened["text"])
    assert detail.attempt > MAX_ATTEMPTS
    assert detail.attempt - detail.failed_probes <= MAX_ATTEMPTS
    assert [each.number for each in detail.attempts] == list(range(1, detail.attempt + 1))
    assert [each.is_failed_probe for each in detail.attempts].count(True) == detail.failed_probes
    tokens = [call.token for call in target.calls("down") if call.run_id == run_id]
    assert tokens == sorted(set(tokens))


CONSECUTIVE = "consecutive_failures"
OPENED = (
    r"The circuit breaker of {name} for few opened at \d\d:\d\d:\d\d UTC: "
    rf"the last {FAILURES} attempts failed\. Runs for it wait without using attempts\. "
    r"The next probe is at \d\d:\d\d:\d\d UTC\."
)


@pytest.mark.requirement("S113", "ASK-2")
async def test_replay_job_shows_the_breaker_that_defers_its_canary(
    stack: Stack, target: Target
) -> None:
    name = downstream(target)
    async with stack.tenant("canary") as tenant:
        await put_failing(tenant, target, max_attempts=1)
        await tenant.until_runs(FAILURES, "dead", within=LONG_TIMEOUT)
        await until_action(tenant, name, "open")
        await until_dead_letters(tenant, FAILURES)
        started = await tenant.harebell.start_replay_job(select={"all": True}, canary=2)
        assert started.id is not None
        wait = await until_waiting_for_breaker(tenant, str(started.id))
        await until_failed_probes(tenant, 1)
        job = await tenant.harebell.replay_job(started.id)
        target.fix("down")
        await tenant.until_runs(FAILURES, "succeeded", within=LONG_TIMEOUT)
        done = await until_done(tenant, str(started.id))

    assert (job.state, job.succeeded, job.failed) == ("running", 0, 0)
    assert wait.downstream == name
    assert wait.next_probe_at is not None
    assert re.fullmatch(
        rf"The canary waits for [12] runs? that the open circuit breaker of {re.escape(name)} "
        r"defers\. The next probe is at \d\d:\d\d:\d\d UTC\.",
        wait.text,
    )
    assert (done.succeeded, done.failed, done.waiting_for) == (FAILURES, 0, None)


async def until_dead_letters(tenant: Tenant, count: int) -> None:
    async def is_reached() -> bool:
        return len([each async for each in tenant.harebell.dead_letters()]) == count

    await until(is_reached, within=LONG_TIMEOUT, what=f"{count} dead letters")


async def until_waiting_for_breaker(tenant: Tenant, replay_job: str) -> ReplayJobWait:
    """Return the wait for an open breaker. A half open breaker has no time of its next probe."""
    found: list[ReplayJobWait] = []

    async def is_reached() -> bool:
        wait = (await tenant.harebell.replay_job(replay_job)).waiting_for
        if wait is not None and wait.next_probe_at is not None:
            found.append(wait)
        return bool(found)

    await until(is_reached, within=LONG_TIMEOUT, what="the wait for a breaker")
    return found[0]


async def until_done(tenant: Tenant, replay_job: str) -> Any:
    async def is_reached() -> bool:
        return (await tenant.harebell.replay_job(replay_job)).state == "done"

    await until(is_reached, within=LONG_TIMEOUT, what="the end of the replay job")
    return await tenant.harebell.replay_job(replay_job)


@pytest.mark.requirement("S113", "S82")
async def test_run_is_not_lost_when_its_executor_is_killed_during_a_probe(
    stack: Stack, target: Target
) -> None:
    name = downstream(target)
    async with stack.tenant("killed") as tenant:
        await put_failing(tenant, target, max_attempts=1)
        await tenant.until_runs(FAILURES, "dead", within=LONG_TIMEOUT)
        await until_action(tenant, name, "open")
        slow = target.http("slow", sleep=OPEN_DURATION)
        id_ = await tenant.put("slow", {"now": True}, slow, retry={"max_attempts": 3})

        async def is_called() -> bool:
            return len(target.calls("slow")) > 0

        await until(is_called, within=LONG_TIMEOUT, what="the probe")
        await asyncio.to_thread(restart_executor, stack)
        runs = await tenant.until_runs(1, "succeeded", within=LONG_TIMEOUT)

    assert [str(run["schedule_id"]) for run in runs] == [id_]
    assert (runs[0]["attempt"], runs[0]["failed_probes"]) == (2, None)


def restart_executor(stack: Stack) -> None:
    """Kill the executor with SIGKILL and start it again."""
    name = name_of(ServiceKind.EXECUTOR, 1)
    stack.kill(name)
    stack.start_one(ServiceKind.EXECUTOR, 1, ready=True, **SETTINGS)
