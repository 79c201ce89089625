"""A chain of two schedules: an outcome event of the first triggers the second."""

import pytest
from tests.acceptance.amqp_client import AmqpClient
from tests.acceptance.recording_target import Target
from tests.acceptance.stack import Tenant

pytestmark = [pytest.mark.broker, pytest.mark.postgres]

FAR = {"every": "1h"}  # no run of its own during the test


@pytest.mark.requirement("S126")
async def test_outcome_event_triggers_another_schedule_once_when_it_is_delivered_twice(
    tenant: Tenant, target: Target
) -> None:
    async with AmqpClient.open(tenant.stack.amqp_url, tenant.name) as amqp:
        events = await amqp.events("run.succeeded")
        load = await tenant.put("load", FAR, target.http("load"))
        await tenant.put("report", FAR, target.http("report"))
        loaded = await tenant.harebell.trigger(key="load")

        event = await events.get()
        responses = [
            await tenant.harebell.trigger(key="report", request_id=f"report-after-{event['id']}")
            for _ in range(2)
        ]
        await tenant.until_runs(2, "succeeded")

    assert (event["data"]["run_id"], event["data"]["schedule_id"]) == (loaded.run_id, load)
    assert responses[0] == responses[1]
    (first,), (second,) = target.calls("load"), target.calls("report")
    assert second.run_id == responses[0].run_id
    assert first.finished_at is not None
    assert second.started_at >= first.finished_at
