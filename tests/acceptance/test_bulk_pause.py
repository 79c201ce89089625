"""A pause of hundreds of schedules by one command, and the resume by its id."""

from collections import Counter
from typing import Any

import pytest
from tests.acceptance.recording_target import Target
from tests.acceptance.stack import Tenant

pytestmark = [pytest.mark.broker, pytest.mark.postgres, pytest.mark.long]

SCHEDULES = 600  # more than one message may contain
PART = 300  # schedules in one message
SPECIAL = {"cancelled", "resumed-early", "paused-before"}
HOURLY = {"every": "1h"}


@pytest.mark.requirement("ASK-22")
async def test_resume_by_id_resumes_the_hundreds_of_schedules_that_the_pause_changed(
    tenant: Tenant, target: Target
) -> None:
    common: dict[str, Any] = {"when": HOURLY, "target": target.http("never"), "tags": ["fleet"]}
    keys = [f"fleet-{number}" for number in range(SCHEDULES - len(SPECIAL))] + sorted(SPECIAL)
    for start in range(0, SCHEDULES, PART):
        await tenant.harebell.put_many(
            [{"key": key, **common} for key in keys[start : start + PART]]
        )
    await tenant.put("other", HOURLY, target.http("never"), tags=["other"])
    await tenant.harebell.cancel(key="cancelled")
    await tenant.harebell.pause(key="paused-before", note="by a person")
    before = await states_of(tenant)

    paused = await tenant.harebell.pause_all({"tag": "fleet"}, request_id="upgrade")
    during = await states_of(tenant)
    await tenant.harebell.resume(key="resumed-early")
    resumed = await tenant.harebell.resume_all(request_id="upgraded", bulk_operation_id="upgrade")

    changed = SCHEDULES - 2  # without the cancelled schedule and the schedule paused before
    assert Counter(before.values()) == {"active": changed + 1, "paused": 1, "cancelled": 1}
    assert len(set(paused.changed)) == changed
    assert Counter(during.values()) == {"active": 1, "paused": changed + 1, "cancelled": 1}
    assert during["other"] == "active"
    assert len(resumed.changed) == changed - 1
    assert set(resumed.changed) < set(paused.changed)
    assert await states_of(tenant) == before


async def states_of(tenant: Tenant) -> dict[str, str]:
    return {str(each.key): each.state async for each in tenant.harebell.schedules()}
