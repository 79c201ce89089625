"""One schedule's end starts another's run: outcome events and a trigger, as the documents say."""

import pytest
from tests.acceptance.record import Target
from tests.acceptance.stack import Tenant
from tests.acceptance.wire import Wire

pytestmark = [pytest.mark.broker, pytest.mark.postgres]

FAR = {"every": "1h", "start": "2026-01-01"}


@pytest.mark.requirement("S126")
async def test_an_outcome_event_triggers_another_schedule_once_however_often_it_is_heard(
    tenant: Tenant, target: Target
) -> None:
    async with Wire.open(tenant.stack.amqp_url, tenant.name) as wire:
        facts = await wire.events("run.succeeded")
        load = await tenant.put("load", FAR, target.http("load"))
        await tenant.put("report", FAR, target.http("report"))
        loaded = await tenant.harebell.trigger(key="load")

        fact = await facts.get()
        answers = [
            await tenant.harebell.trigger(key="report", request_id=f"report-after-{fact['id']}")
            for _ in range(2)
        ]
        await tenant.until_runs(2, "succeeded")

    assert (fact["data"]["run_id"], fact["data"]["schedule_id"]) == (loaded.run_id, load)
    assert answers[0] == answers[1]
    (first,), (second,) = target.calls("load"), target.calls("report")
    assert second.run_id == answers[0].run_id
    assert first.finished_at is not None
    assert second.started_at >= first.finished_at
