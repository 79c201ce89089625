"""A schedule for one time: one run, never before that time, and then the state completed."""

from datetime import timedelta, timezone

import pytest
from tests.acceptance.recording_target import Target
from tests.acceptance.stack import Tenant, time_in
from tests.rig.polling import until

pytestmark = [pytest.mark.broker, pytest.mark.postgres]

OTHER_TIMEZONE = timezone(timedelta(hours=5, minutes=45))


@pytest.mark.requirement("S02")
async def test_one_shot_with_an_offset_runs_once_at_its_time_and_completes(
    tenant: Tenant, target: Target
) -> None:
    at = time_in(2)
    schedule = {
        "key": "once",
        "when": {"at": at.astimezone(OTHER_TIMEZONE).isoformat()},
        "target": target.http("once"),
        "request_id": "put of the one-shot",
    }

    first = await tenant.harebell.put(schedule)
    await tenant.until_runs(1, "succeeded")

    async def is_completed() -> bool:
        view = await tenant.harebell.schedule(key="once")
        return bool(view.state == "completed")

    await until(is_completed, what="a completed schedule")
    repeated = await tenant.harebell.put(schedule)

    (run,) = await tenant.runs()
    (call,) = target.calls("once")
    assert first.next_at == [at]
    assert repeated == first
    assert run["scheduled_for"] == call.scheduled_for == at
    assert call.late >= 0
