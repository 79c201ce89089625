"""Ended schedules on a running stack: rejected puts, revivals, deletions and the command line."""

import json
from pathlib import Path
from typing import Any

import orjson
import pytest
from tests.acceptance.amqp_client import AmqpClient
from tests.acceptance.recording_target import Target
from tests.acceptance.stack import Tenant, time_in
from tests.rig.command_line import Done, harebell
from tests.rig.polling import until

from harebell.client import CommandRejected

pytestmark = [pytest.mark.broker, pytest.mark.postgres]


async def cli(tenant: Tenant, *words: str, stdin: str = "") -> Done:
    """Run a `harebell` command of the tenant."""
    url = tenant.stack.amqp_url
    return await harebell(*words, stdin=stdin, HAREBELL_AMQP_URL=url, HAREBELL_TENANT=tenant.name)


async def listed(tenant: Tenant) -> list[str | None]:
    return [view.key async for view in tenant.harebell.schedules()]


@pytest.mark.requirement("S26", "ASK-18")
async def test_put_of_an_ended_schedule_is_rejected_and_its_repeat_gets_the_first_response(
    tenant: Tenant, target: Target
) -> None:
    body: dict[str, Any] = {"key": "once", "when": {"now": True}, "target": target.http("once")}
    async with AmqpClient.open(tenant.stack.amqp_url, tenant.name) as amqp:

        async def put(request_id: str | None) -> Any:
            fields = {} if request_id is None else {"request_id": request_id}
            return await (await amqp.send("schedule.put", orjson.dumps({**body, **fields})))

        first = await put("first")
        await tenant.until_runs(1, "succeeded")
        repeated = await put("first")
        other = await put("second")
    with pytest.raises(CommandRejected) as rejected:
        await tenant.harebell.put(body)
    revived = await tenant.harebell.put({**body, "revive": True})
    await tenant.until_runs(2, "succeeded")

    assert (first["status"], repeated) == ("created", first)
    assert other["error"]["code"] == rejected.value.code == "schedule_ended"
    assert rejected.value.field == "key"
    assert "`revive`" in rejected.value.reason
    assert (revived.status, revived.version, revived.state) == ("updated", 2, "active")
    assert len(target.calls("once")) == 2


@pytest.mark.requirement("S26")
async def test_command_line_fails_for_an_ended_schedule_and_revives_it(
    tenant: Tenant, target: Target
) -> None:
    body = {"key": "daily", "when": {"every": "1h"}, "target": target.http("never")}
    await tenant.harebell.put(body)
    await tenant.harebell.cancel(key="daily")

    code, out, err = await cli(tenant, "schedule", "put", "-", stdin=json.dumps(body))
    revived = await cli(tenant, "schedule", "put", "-", "--revive", stdin=json.dumps(body))

    assert (code, out) == (1, "")
    assert "--revive" in err
    assert "(schedule_ended)" in err
    assert revived[0] == 0, revived
    assert (await tenant.harebell.schedule(key="daily")).state == "active"


@pytest.mark.requirement("S34")
async def test_deleted_schedule_is_in_no_list_and_its_history_stays_readable(
    tenant: Tenant, target: Target
) -> None:
    put = {"key": "once", "when": {"now": True}, "target": target.http("once")}
    await tenant.harebell.put(put)
    await tenant.put("other", {"every": "1h"}, target.http("never"))
    (row,) = await tenant.until_runs(1, "succeeded")

    refused = await cli(tenant, "schedule", "delete", "other")
    deleted = await cli(tenant, "schedule", "delete", "once", "-o", "json")
    again = await cli(tenant, "schedule", "delete", "once")
    why = await tenant.harebell.why(key="once", at=row["scheduled_for"])
    versions = await tenant.harebell.versions(key="once")
    runs = [run async for run in tenant.harebell.runs(key="once")]
    gone = await cli(tenant, "schedule", "get", "once")

    assert refused[0] == 1
    assert "(not_ended)" in refused[2]
    assert (deleted[0], json.loads(deleted[1])["status"]) == (0, "deleted")
    assert (again[0], gone[0]) == (3, 3)
    assert await listed(tenant) == ["other"]
    assert (why.verdict, why.state, len(why.attempts)) == ("ran", "deleted", 1)
    assert [version.version for version in versions] == [1]
    assert [(run.key, run.state) for run in runs] == [("once", "succeeded")]


@pytest.mark.requirement("S34")
async def test_put_uses_the_key_of_a_deleted_schedule_again(tenant: Tenant, target: Target) -> None:
    body = {"key": "again", "when": {"now": True}, "target": target.http("again")}
    first = await tenant.harebell.put(body)
    await tenant.until_runs(1, "succeeded")
    await tenant.harebell.delete(key="again")

    second = await tenant.harebell.put(body)
    await tenant.until_runs(2, "succeeded")

    assert (second.status, second.version, second.id) == ("created", 2, first.id)
    assert await listed(tenant) == ["again"]
    versions = await tenant.harebell.versions(key="again")
    assert [(each.version, each.in_force) for each in versions] == [(2, True), (1, False)]
    assert len({run["scheduled_for"] for run in await tenant.runs()}) == 2


@pytest.mark.requirement("ASK-15")
async def test_apply_revives_a_cancelled_schedule_and_keeps_a_completed_one(
    tenant: Tenant, target: Target, tmp_path: Path
) -> None:
    once = {"key": "once", "when": {"now": True}, "target": target.http("once")}
    hourly = {"key": "hourly", "when": {"every": "1h"}, "target": target.http("never")}
    (tmp_path / "schedules.json").write_text(json.dumps([once, hourly]))
    apply = ("apply", "-f", str(tmp_path), "--owner", "sales", "-o", "json")
    await cli(tenant, *apply)
    await tenant.until_runs(1, "succeeded")

    async def is_completed() -> bool:
        return (await tenant.harebell.schedule(key="once")).state == "completed"

    await until(is_completed, what="the completed schedule")
    await tenant.harebell.cancel(key="hourly")

    code, out, err = await cli(tenant, *apply)

    assert code == 0, err
    rows = {row["key"]: row for row in json.loads(out)}
    assert (rows["once"]["action"], rows["hourly"]["action"]) == ("keep", "revive")
    assert rows["hourly"]["note"] == "The schedule is cancelled and starts again."
    assert (await tenant.harebell.schedule(key="hourly")).state == "active"
    assert len(target.calls("once")) == 1


@pytest.mark.requirement("S09", "S13")
async def test_schedules_of_an_import_without_times_run_at_different_phases(
    tenant: Tenant, target: Target
) -> None:
    schedules = [{"key": f"import-{n}", "target": target.http("never")} for n in range(100)]

    responses = await tenant.harebell.put_many(schedules)
    preview = await tenant.harebell.preview(key="import-0", count=2)
    stored = await tenant.harebell.schedule(key="import-0")
    await tenant.harebell.cancel_all({"state": "active"}, request_id="end of the import")

    assert {response.ok for response in responses} == {True}
    first = {response.next_at[0] for response in responses if response.ok}
    assert len(first) > 90
    assert max(first) <= time_in(300)
    assert (stored.definition["when"]["every"], stored.definition["when"]["phase"]) == (
        "5m",
        "spread",
    )
    assert [note.about for note in preview.instants[0].notes] == ["phase"]
