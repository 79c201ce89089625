"""Repeated commands, and two commands of which the second does not wait for the first."""

import asyncio
from collections import Counter

import orjson
import pytest
from tests.acceptance.amqp_client import AmqpClient
from tests.acceptance.recording_target import Target
from tests.acceptance.stack import Tenant

pytestmark = [pytest.mark.broker, pytest.mark.postgres]


@pytest.mark.requirement("S26", "S86", "ASK-18")
async def test_put_sent_twenty_times_at_once_creates_one_schedule_and_one_run(
    tenant: Tenant, target: Target
) -> None:
    schedule = {"key": "same", "when": {"after": "2s"}, "target": target.http("same")}

    responses = await asyncio.gather(*(tenant.harebell.put(schedule) for _ in range(20)))
    await tenant.until_runs(1, "succeeded")

    assert Counter(response.status for response in responses) == {"created": 1, "unchanged": 19}
    assert len({response.id for response in responses}) == 1
    assert {response.version for response in responses} == {1}
    assert len({tuple(response.next_at) for response in responses}) == 1
    assert len([view async for view in tenant.harebell.schedules()]) == 1
    assert len(target.calls("same")) == len(await tenant.runs()) == 1


async def test_schedule_is_cancelled_when_put_and_cancel_are_sent_without_waiting(
    tenant: Tenant, target: Target
) -> None:
    put = {"key": "regret", "when": {"after": "1s"}, "target": target.http("regret")}
    later = {"key": "later", "when": {"after": "3s"}, "target": target.http("later")}

    async with AmqpClient.open(tenant.stack.amqp_url, tenant.name) as amqp:
        sent_commands = [
            await amqp.send("schedule.put", orjson.dumps(put)),
            await amqp.send("schedule.cancel", orjson.dumps({"key": "regret"})),
            await amqp.send("schedule.put", orjson.dumps(later)),
        ]
        responses = await asyncio.gather(*sent_commands)
    await tenant.until_runs(1, "succeeded")

    ids = [response["id"] for response in responses]
    assert [response["status"] for response in responses] == ["created", "cancelled", "created"]
    assert (await tenant.harebell.schedule(key="regret")).state == "cancelled"
    assert target.calls("regret") == []
    # two commands in one transaction stage no run
    regretted = {row["state"] for row in await tenant.runs() if str(row["schedule_id"]) == ids[0]}
    assert regretted <= {"cancelled"}
