"""`harebell audit` on a stack that did a bit of everything, and on what was then spoiled."""

import asyncio
import json
import os
import sys
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import asyncpg
import pytest
from tests.acceptance.recording_target import Target
from tests.acceptance.stack import Stack, Tenant, time_in, now
from tests.rig.servers import as_role

from harebell.dev.plan import ServiceCounts

pytestmark = [pytest.mark.broker, pytest.mark.postgres]

ECHO = {"task": {"name": "harebell.echo"}}
SECONDLY = {"every": "1s"}
HOURLY = {"every": "1h"}
RUNS = 100  # of all schedules at least, before anything is judged


@dataclass(frozen=True)
class Told:
    exit_code: int
    output: str
    report: dict[str, Any]

    def kinds(self, key: str) -> set[str]:
        return {each["kind"] for each in self.report["findings"] if each["key"] == key}


def audit_command(*words: str) -> list[str]:
    return [sys.executable, "-m", "harebell.cli", "audit", *words]


def environment(stack: Stack) -> dict[str, str]:
    """With the database alone, as who may only read it."""
    mine = {name: text for name, text in os.environ.items() if not name.startswith("HAREBELL_")}
    paths = os.pathsep.join(sys.path)
    url = as_role(stack.database_url, "auditor")
    return mine | {"PYTHONPATH": paths, "HAREBELL_DATABASE_URL": url}


async def audit(stack: Stack, *words: str) -> Told:
    process = await asyncio.create_subprocess_exec(
        *audit_command("-o", "json", *words),
        env=environment(stack),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, errors = await process.communicate()
    report = json.loads(out) if out else {}
    return Told(process.returncode or 0, errors.decode(), report)


async def put_all(tenant: Tenant, target: Target) -> None:
    await tenant.put("steady", SECONDLY, ECHO)
    await tenant.put("jittered", {"cron": "* * * * * *", "jitter": "2s"}, ECHO)
    await tenant.put("counted", {**SECONDLY, "times": 4}, ECHO)
    await tenant.put("gentle", {**SECONDLY, "from": "completion"}, ECHO)
    await tenant.put("once", {"at": time_in(3).isoformat()}, ECHO)
    quick = {"max_attempts": 2, "backoff": {"base": "200ms", "jitter": "none"}}
    await tenant.put("failing", SECONDLY, target.http("audit", broken="audit"), retry=quick)
    await tenant.put("overlap_slots", SECONDLY, target.http("audit", sleep=1.5), overlap="skip")
    for key in ("paused", "cancelled", "later", "moved", "patched", "skipping"):
        await tenant.put(key, SECONDLY, ECHO, catch_up={"mode": "all"})
    await tenant.put("triggered", HOURLY, ECHO)
    await tenant.put("backfilled", {"cron": "*/10 * * * *"}, ECHO)


async def change_all(tenant: Tenant) -> None:
    harebell = tenant.harebell
    await harebell.pause(key="paused")
    await harebell.cancel(key="cancelled")
    await harebell.patch({"when": {"every": "2s"}}, key="later", effective_at=time_in(4))
    await harebell.patch({"when": {"every": "3s"}}, key="moved")
    await harebell.patch({"priority": 9}, key="patched")
    await harebell.trigger(key="triggered")
    await harebell.backfill(now() - timedelta(hours=1), now(), key="backfilled")
    upcoming = await harebell.preview(key="skipping", count=5)
    await harebell.skip(upcoming.instants[4].at, key="skipping")


async def change_back(tenant: Tenant) -> None:
    await tenant.harebell.resume(key="paused")
    again = {"key": "cancelled", "when": SECONDLY, "target": ECHO, "expected_version": "any"}
    await tenant.harebell.put(again)


async def live(tenant: Tenant, target: Target) -> None:
    """Until enough has run; what is open then settles, or is no later than it may be."""
    await put_all(tenant, target)
    await asyncio.sleep(4)
    await change_all(tenant)
    await asyncio.sleep(6)
    await change_back(tenant)
    await tenant.until_runs(RUNS, "succeeded")


SECOND_RUN = """
SELECT r.scheduled_for, r.schedule_id FROM runs r JOIN schedules s ON s.id = r.schedule_id
WHERE s.key = $1 AND r.state = 'succeeded' ORDER BY r.scheduled_for LIMIT 1 OFFSET 1
"""
LOST = "DELETE FROM runs WHERE scheduled_for = $1 AND schedule_id = $2"
DOUBLED = """
INSERT INTO attempts (scheduled_for, schedule_id, replay_number, number, finished_at, outcome)
VALUES ($1, $2, 1, 2, now(), 'succeeded')
"""
INVENTED = """
UPDATE runs SET origin = NULL, scheduled_for = scheduled_for + interval '1 s'
WHERE scheduled_for = $1 AND schedule_id = $2
"""
LATE = """
UPDATE attempts SET started_at = started_at + interval '2 min'
WHERE scheduled_for = $1 AND schedule_id = $2
"""
IMPOSSIBLE = "UPDATE runs SET finished_at = NULL WHERE scheduled_for = $1 AND schedule_id = $2"
DISAGREES = "UPDATE runs SET state = 'dead' WHERE scheduled_for = $1 AND schedule_id = $2"
STUCK = """
UPDATE schedule_state SET next_at = now() - interval '5 min'
WHERE $1::timestamptz IS NOT NULL AND schedule_id = $2
"""
DAMAGE = {  # by the schedule that suffers it; and what is found then
    "steady": (LOST, "lost"),
    "jittered": (DOUBLED, "doubled"),
    "backfilled": (INVENTED, "invented"),
    "patched": (LATE, "late"),
    "counted": (IMPOSSIBLE, "impossible"),
    "moved": (DISAGREES, "disagrees"),
    "later": (STUCK, "stuck"),
}


async def spoil(ledger: asyncpg.Connection) -> None:
    for key, (statement, _) in DAMAGE.items():
        row = await ledger.fetchrow(SECOND_RUN, key)
        assert row is not None, f"{key} has no two runs that succeeded"
        await ledger.execute(statement, row["scheduled_for"], row["schedule_id"])


@pytest.mark.requirement("S40", "S76", "S90")
async def test_a_mixed_life_audits_clean_and_each_damage_is_found(
    own_stack: Stack, target: Target
) -> None:
    await asyncio.to_thread(own_stack.start, ServiceCounts(tickers=2))
    async with own_stack.tenant("mixed") as tenant:
        await live(tenant, target)

        living = await audit(own_stack, "--all-tenants")
        await asyncio.to_thread(own_stack.stop)
        still = await audit(own_stack, "--all-tenants")

        await spoil(tenant.ledger)
        spoiled = await audit(own_stack, "--all-tenants")

    for told in (living, still):
        assert (told.exit_code, told.output) == (0, "")
        assert (told.report["findings"], told.report["missed_heartbeats"]) == ([], [])
        assert told.report["expected"] == told.report["recorded"] > RUNS
    assert spoiled.exit_code == 1
    for key, (_, kind) in DAMAGE.items():
        assert kind in spoiled.kinds(key), key
    assert {each["key"] for each in spoiled.report["findings"]} == DAMAGE.keys()
    assert [each["component"] for each in spoiled.report["missed_heartbeats"]] == ["ticker"]


async def test_an_audit_can_be_of_one_tenant_or_one_schedule(own_stack: Stack) -> None:
    await asyncio.to_thread(own_stack.start)
    async with own_stack.tenant("one") as one, own_stack.tenant("other") as other:
        await one.put("k", {"now": True}, ECHO)
        await other.put("k", {"now": True}, ECHO)
        await one.until_runs(1, "succeeded")
        await other.ledger.execute("DELETE FROM runs WHERE tenant = 'other'")

        everybody = await audit(own_stack, "--all-tenants")
        mine = await audit(own_stack, "--tenant", "one")
        theirs = await audit(own_stack, "--tenant", "other", "--schedule", "k")

    assert (everybody.exit_code, everybody.report["schedules"]) == (1, 2)
    assert (mine.exit_code, mine.report["schedules"]) == (0, 1)
    assert (theirs.exit_code, theirs.kinds("k")) == (1, {"lost"})


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["--since", "31d"], "since"),
        (["--since", "yesterday"], "since"),
        (["--late-after", "soon"], "late_after"),
    ],
)
async def test_wrong_usage_names_the_option(own_stack: Stack, words: list[str], named: str) -> None:
    told = await audit(own_stack, *words)

    assert told.exit_code == 2
    assert told.output.startswith(f"harebell: {named}: ")


async def test_without_a_database_the_variable_is_named(own_stack: Stack) -> None:
    told = await audit(own_stack, "--database-url", "")

    assert told.exit_code == 2
    assert "HAREBELL_DATABASE_URL" in told.output
