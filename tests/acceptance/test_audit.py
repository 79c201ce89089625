"""The command `harebell audit` on a stack with a mixed load, and on a damaged ledger."""

import asyncio
import json
import sys
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import asyncpg
import pytest
from tests.acceptance.recording_target import Target
from tests.acceptance.stack import Stack, Tenant, now, time_in
from tests.rig.command_line import caller_environment, harebell
from tests.rig.servers import as_role

from harebell.dev.plan import ServiceCounts

pytestmark = [pytest.mark.broker, pytest.mark.postgres, pytest.mark.long]

ECHO = {"task": {"name": "harebell.echo"}}
EVERY_SECOND = {"every": "1s"}
EVERY_HOUR = {"every": "1h"}
RUNS = 100  # of all schedules before the first audit


@dataclass(frozen=True)
class AuditResult:
    exit_code: int
    output: str
    report: dict[str, Any]

    def kinds(self, key: str) -> set[str]:
        return {each["kind"] for each in self.report["findings"] if each["key"] == key}


def audit_command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "harebell.cli", "audit", *arguments]


def environment(stack: Stack) -> dict[str, str]:
    """Return an environment with the database only, and with the read-only role."""
    url = as_role(stack.database_url, "auditor")
    return caller_environment() | {"HAREBELL_DATABASE_URL": url}


async def audit(stack: Stack, *arguments: str) -> AuditResult:
    url = as_role(stack.database_url, "auditor")
    code, out, errors = await harebell("audit", "-o", "json", *arguments, HAREBELL_DATABASE_URL=url)
    report = json.loads(out) if out else {}
    return AuditResult(code, errors, report)


async def put_all(tenant: Tenant, target: Target) -> None:
    await tenant.put("steady", EVERY_SECOND, ECHO)
    await tenant.put("jittered", {"cron": "* * * * * *", "jitter": "2s"}, ECHO)
    await tenant.put("counted", {**EVERY_SECOND, "times": 4}, ECHO)
    await tenant.put("gentle", {**EVERY_SECOND, "from": "completion"}, ECHO)
    await tenant.put("once", {"at": time_in(3).isoformat()}, ECHO)
    quick = {"max_attempts": 2, "backoff": {"base": "200ms", "jitter": "none"}}
    await tenant.put("failing", EVERY_SECOND, target.http("audit", broken="audit"), retry=quick)
    await tenant.put("slow", EVERY_SECOND, target.http("audit", sleep=1.5), overlap="skip")
    for key in ("paused", "cancelled", "later", "moved", "patched", "skipping"):
        await tenant.put(key, EVERY_SECOND, ECHO, catch_up={"mode": "all"})
    await tenant.put("triggered", EVERY_HOUR, ECHO)
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
    again = {"key": "cancelled", "when": EVERY_SECOND, "target": ECHO, "revive": True}
    await tenant.harebell.put(again)


async def run_load(tenant: Tenant, target: Target) -> None:
    """Put and change schedules, and wait until the planned number of runs has succeeded."""
    await put_all(tenant, target)
    await asyncio.sleep(4)
    await change_all(tenant)
    await asyncio.sleep(6)
    await change_back(tenant)
    await tenant.until_runs(RUNS, "succeeded")


_SECOND_RUN = """
SELECT r.scheduled_for, r.schedule_id FROM runs r JOIN schedules s ON s.id = r.schedule_id
WHERE s.key = $1 AND r.state = 'succeeded' ORDER BY r.scheduled_for LIMIT 1 OFFSET 1
"""
_DELETE_RUN = "DELETE FROM runs WHERE scheduled_for = $1 AND schedule_id = $2"
_ADD_ATTEMPT = """
INSERT INTO attempts (scheduled_for, schedule_id, replay_number, number, finished_at, outcome)
VALUES ($1, $2, 0, 2, now(), 'succeeded')
"""
_MOVE_RUN = """
UPDATE runs SET origin = NULL, scheduled_for = scheduled_for + interval '1 s'
WHERE scheduled_for = $1 AND schedule_id = $2
"""
_DELAY_ATTEMPT = """
UPDATE attempts SET started_at = started_at + interval '2 min'
WHERE scheduled_for = $1 AND schedule_id = $2
"""
_REMOVE_END = "UPDATE runs SET finished_at = NULL WHERE scheduled_for = $1 AND schedule_id = $2"
_CHANGE_STATE = "UPDATE runs SET state = 'dead' WHERE scheduled_for = $1 AND schedule_id = $2"
_SET_BACK = """
UPDATE schedule_state SET next_at = now() - interval '5 min', changed_at = now() - interval '5 min'
WHERE $1::timestamptz IS NOT NULL AND schedule_id = $2
"""
# The statement that damages the runs of each schedule, and the kind of the finding.
DAMAGE = {
    "steady": (_DELETE_RUN, "missing"),
    "jittered": (_ADD_ATTEMPT, "duplicated"),
    "backfilled": (_MOVE_RUN, "unexpected"),
    "patched": (_DELAY_ATTEMPT, "late"),
    "counted": (_REMOVE_END, "invalid"),
    "moved": (_CHANGE_STATE, "inconsistent"),
    "later": (_SET_BACK, "stuck"),
}


async def damage_ledger(ledger: asyncpg.Connection) -> None:
    for key, (statement, _) in DAMAGE.items():
        row = await ledger.fetchrow(_SECOND_RUN, key)
        assert row is not None, f"{key} has no two runs that succeeded"
        await ledger.execute(statement, row["scheduled_for"], row["schedule_id"])


@pytest.mark.long
@pytest.mark.requirement("S40", "S76", "S90")
async def test_audit_finds_no_fault_after_a_mixed_load_and_finds_each_damage(
    own_stack: Stack, target: Target
) -> None:
    await asyncio.to_thread(own_stack.start, ServiceCounts(tickers=2))
    async with own_stack.tenant("mixed") as tenant:
        await run_load(tenant, target)

        running_result = await audit(own_stack, "--all-tenants")
        await asyncio.to_thread(own_stack.stop)
        stopped_result = await audit(own_stack, "--all-tenants")

        await damage_ledger(tenant.ledger)
        damaged = await audit(own_stack, "--all-tenants")

    for result in (running_result, stopped_result):
        assert (result.exit_code, result.output) == (0, "")
        assert (result.report["findings"], result.report["missed_heartbeats"]) == ([], [])
        assert result.report["expected"] == result.report["recorded"] > RUNS
    assert damaged.exit_code == 1
    for key, (_, kind) in DAMAGE.items():
        assert kind in damaged.kinds(key), key
    assert {each["key"] for each in damaged.report["findings"]} == DAMAGE.keys()
    assert [each["component"] for each in damaged.report["missed_heartbeats"]] == ["ticker"]


@pytest.mark.long
async def test_audit_selects_one_tenant_or_one_schedule(own_stack: Stack) -> None:
    await asyncio.to_thread(own_stack.start)
    async with own_stack.tenant("one") as one, own_stack.tenant("other") as other:
        await one.put("k", {"now": True}, ECHO)
        await other.put("k", {"now": True}, ECHO)
        await one.until_runs(1, "succeeded")
        await other.ledger.execute("DELETE FROM runs WHERE tenant = 'other'")

        all_tenants = await audit(own_stack, "--all-tenants")
        one_tenant = await audit(own_stack, "--tenant", "one")
        one_schedule = await audit(own_stack, "--tenant", "other", "--schedule", "k")

    assert (all_tenants.exit_code, all_tenants.report["schedules"]) == (1, 2)
    assert (one_tenant.exit_code, one_tenant.report["schedules"]) == (0, 1)
    assert (one_schedule.exit_code, one_schedule.kinds("k")) == (1, {"missing"})


@pytest.mark.parametrize(
    ("arguments", "option"),
    [
        (["--since", "31d"], "since"),
        (["--since", "yesterday"], "since"),
        (["--late-after", "soon"], "late_after"),
    ],
)
async def test_audit_error_names_the_invalid_option(
    own_stack: Stack, arguments: list[str], option: str
) -> None:
    result = await audit(own_stack, *arguments)

    assert result.exit_code == 2
    assert result.output.startswith(f"harebell: {option}: ")


async def test_audit_error_names_the_missing_database_variable(own_stack: Stack) -> None:
    result = await audit(own_stack, "--database-url", "")

    assert result.exit_code == 2
    assert "HAREBELL_DATABASE_URL" in result.output
