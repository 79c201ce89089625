"""The forecast on real servers: recorded hours, planned hours, and the tenants of a query."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from tests.integration.intake.conftest import IntakeBus
from tests.integration.intake.ledger import insert_run, insert_schedule

from harebell.contract.amqp_names import OPERATIONS_TENANT
from harebell.contract.calendar import WEEKDAYS
from harebell.contract.types import instant_text

pytestmark = [pytest.mark.broker, pytest.mark.postgres]

HOUR = timedelta(hours=1)
VERB = "run.forecast"


def this_hour() -> datetime:
    return datetime.now(UTC).replace(minute=0, second=0, microsecond=0)


async def put(intake: IntakeBus, tenant: str, when: dict[str, Any], **fields: Any) -> None:
    """Store an active schedule with times from now on, as the ticker stores it."""
    key = fields.pop("key", "k")
    now = datetime.now(UTC).replace(microsecond=0)
    await insert_schedule(
        intake.database,
        tenant,
        key,
        created_at=now,
        next_at=now + timedelta(minutes=1),
        definition={"when": when, **fields},
        tags=fields.pop("tags", None),
    )


def groups(response: Any) -> dict[str | None, list[int | None]]:
    return {group.get("name"): group["runs"] for group in response["groups"]}


async def test_every_hour_of_the_next_day_has_its_planned_runs(intake: IntakeBus) -> None:
    await put(intake, "acme", {"cron": "*/10 * * * *"}, pool="often")
    await put(intake, "acme", {"every": "30m", "start": "2026-01-01T00:15:00Z"}, key="half")

    response = await intake.query(VERB, {"from": instant_text(this_hour() + HOUR)})

    assert len(response["hours"]) == 24
    assert groups(response) == {"often": [6] * 24, "default": [2] * 24}
    assert response["runs"] == [8] * 24
    assert not response.get("quiet_hours")
    assert not response.get("notes")


async def test_frequent_interval_costs_no_enumeration(intake: IntakeBus) -> None:
    await put(intake, "acme", {"every": "1s", "start": "2026-01-01T00:00:00Z"})
    start, end = this_hour() + HOUR, this_hour() + 7 * 24 * HOUR

    response = await intake.query(VERB, {"from": instant_text(start), "to": instant_text(end)})

    assert response["runs"] == [3600] * (7 * 24 - 1)


@pytest.mark.requirement("ASK-9", "ASK-3")
async def test_forecast_names_the_calendars_that_exclude_or_hold_back_times(
    intake: IntakeBus,
) -> None:
    begin = this_hour() + 2 * HOUR
    window = {
        "weekdays": [*WEEKDAYS],
        "from": f"{begin:%H:%M}",
        "to": f"{begin + HOUR:%H:%M}",
    }
    pinned = [{"version": 1, "name": "closed", "weekly": [window]}]
    for key, field in (("skipped", "exclude"), ("held", "blackout")):
        calendars = {"calendars": {field: ["closed"]}, "pinned_calendars": pinned}
        await put(intake, "acme", {"cron": "*/10 * * * *"}, key=key, **calendars)

    response = await intake.query(
        VERB, {"from": instant_text(begin - HOUR), "to": instant_text(begin + 2 * HOUR)}
    )

    assert response["calendars"] == [{"name": "closed", "tenant": "acme", "excluded": 6, "held": 6}]
    assert response["runs"] == [12, 0, 18]


async def test_past_hours_come_from_the_record_with_their_lateness(intake: IntakeBus) -> None:
    await insert_schedule(intake.database, "acme", "past", created_at=this_hour())
    start = this_hour() - 3 * HOUR
    for number in range(100):
        at = start + number * timedelta(seconds=10)
        late = timedelta(milliseconds=number + 1)
        await insert_run(intake.database, "acme", "past", at, late=late, finished_at=at)

    response = await intake.query(VERB, {"from": instant_text(start)})

    assert response["runs"][:3] == [100, 0, 0]
    assert (response["late_p50_ms"][0], response["late_p99_ms"][0]) == (50.0, 99.0)
    assert response["late_p99_ms"][1] is None
    assert instant_text(start + HOUR) in response["quiet_hours"]


async def test_tenant_receives_its_own_runs_and_operators_those_of_all(intake: IntakeBus) -> None:
    hourly = {"cron": "5 * * * *"}
    await put(intake, "acme", hourly)
    await put(intake, "globex", hourly)
    query = {"from": instant_text(this_hour() + HOUR), "by": "tenant"}

    own = await intake.query(VERB, query, tenant="acme")
    fleet = await intake.query(VERB, query, tenant=OPERATIONS_TENANT)

    assert groups(own) == {"acme": [1] * 24}
    assert groups(fleet) == {"acme": [1] * 24, "globex": [1] * 24}
    assert fleet["runs"] == [2] * 24


async def test_run_counts_in_each_tag_and_once_in_the_sum(intake: IntakeBus) -> None:
    await put(intake, "acme", {"cron": "5 * * * *"}, tags=["a", "b"])
    await put(intake, "acme", {"cron": "5 * * * *"}, key="untagged")

    response = await intake.query(VERB, {"from": instant_text(this_hour() + HOUR), "by": "tag"})

    assert groups(response) == {"a": [1] * 24, "b": [1] * 24, None: [1] * 24}
    assert response["runs"] == [2] * 24


@pytest.mark.parametrize(
    ("first", "last", "field"),
    [(0, 200, "to"), (-800, -790, "from"), (3, 2, "to"), (700, 760, "to")],
)
async def test_range_has_bounds(intake: IntakeBus, first: int, last: int, field: str) -> None:
    query = {
        "from": instant_text(this_hour() + first * HOUR),
        "to": instant_text(this_hour() + last * HOUR),
    }

    response = await intake.query(VERB, query)

    assert response["error"]["field"] == field
