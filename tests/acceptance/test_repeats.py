"""The same command many times, or two in a row that nobody waits for."""

import asyncio
from collections import Counter

import orjson
import pytest
from tests.acceptance.record import Target
from tests.acceptance.stack import Tenant
from tests.acceptance.wire import Wire

pytestmark = [pytest.mark.broker, pytest.mark.postgres]


@pytest.mark.requirement("S26", "S86", "ASK-18")
async def test_one_put_sent_twenty_times_at_once_makes_one_schedule_and_one_run(
    tenant: Tenant, target: Target
) -> None:
    schedule = {"key": "same", "when": {"after": "2s"}, "target": target.http("same")}

    answers = await asyncio.gather(*(tenant.harebell.put(schedule) for _ in range(20)))
    await tenant.until_runs(1, "succeeded")

    assert Counter(answer.status for answer in answers) == {"created": 1, "unchanged": 19}
    assert len({answer.id for answer in answers}) == 1
    assert {answer.version for answer in answers} == {1}
    assert len({tuple(answer.next_at) for answer in answers}) == 1
    assert len([view async for view in tenant.harebell.schedules()]) == 1
    assert len(target.calls("same")) == len(await tenant.runs()) == 1


async def test_a_put_and_its_cancel_sent_without_waiting_end_cancelled(
    tenant: Tenant, target: Target
) -> None:
    put = {"key": "regret", "when": {"after": "1s"}, "target": target.http("regret")}
    later = {"key": "later", "when": {"after": "3s"}, "target": target.http("later")}

    async with Wire.open(tenant.stack.amqp_url, tenant.name) as wire:
        sent = [
            await wire.send("schedule.put", orjson.dumps(put)),
            await wire.send("schedule.cancel", orjson.dumps({"key": "regret"})),
            await wire.send("schedule.put", orjson.dumps(later)),
        ]
        answers = await asyncio.gather(*sent)
    await tenant.until_runs(1, "succeeded")

    ids = [answer["id"] for answer in answers]
    assert [answer["status"] for answer in answers] == ["created", "cancelled", "created"]
    assert (await tenant.harebell.schedule(key="regret"))["state"] == "cancelled"
    assert target.calls("regret") == []
    # applied in one transaction, the two have never owed anything
    regretted = {row["state"] for row in await tenant.runs() if str(row["schedule_id"]) == ids[0]}
    assert regretted <= {"cancelled"}
