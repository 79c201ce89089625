"""Tests of previews, explanations and versions on real servers, from rows of the ticker."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from tests.integration.intake.conftest import IntakeBus
from tests.integration.intake.ledger import (
    insert_range,
    insert_run,
    insert_schedule,
    insert_version,
)

from harebell.contract.types import instant_text, truncate_ms

pytestmark = [pytest.mark.broker, pytest.mark.postgres]

HOUR = timedelta(hours=1)
CREATED = truncate_ms(datetime.now(UTC)).replace(minute=0, second=0, microsecond=0) - timedelta(
    days=2
)
TASK = {"task": {"name": "harebell.echo"}}
HOURLY: dict[str, Any] = {"key": "hourly", "when": {"cron": "0 * * * *"}, "target": TASK}


def this_hour() -> datetime:
    """The start of the current hour, which may change while the tests run."""
    return datetime.now(UTC).replace(minute=0, second=0, microsecond=0)


async def insert_hourly(bus: IntakeBus, **columns: Any) -> None:
    fields: dict[str, Any] = {"definition": HOURLY, "planned_until": this_hour(), **columns}
    await insert_schedule(bus.database, "acme", "hourly", created_at=CREATED, **fields)


async def explain(bus: IntakeBus, at: datetime | None = None) -> dict[str, Any]:
    query = {"key": "hourly"} | ({} if at is None else {"at": instant_text(at)})
    response: dict[str, Any] = await bus.query("schedule.why", query)
    return response


@pytest.mark.requirement("S32")
async def test_preview_of_a_stored_schedule_has_its_state_and_its_skipped_times(
    intake: IntakeBus,
) -> None:
    await insert_hourly(intake, state="paused", skipped_times=[this_hour() + 2 * HOUR])

    preview = await intake.query("schedule.preview", {"key": "hourly", "count": 3})

    assert preview["state"] == "paused"
    assert [each["at"] for each in preview["instants"]] == [
        instant_text(this_hour() + hours * HOUR) for hours in (1, 2, 3)
    ]
    assert [note["about"] for note in preview["instants"][1]["notes"]] == ["skipped"]


@pytest.mark.requirement("ASK-19")
async def test_preview_of_a_definition_is_rejected_when_a_put_would_be(
    intake: IntakeBus,
) -> None:
    nightly = {**HOURLY, "when": {"cron": "30 2 * * *", "timezone": "Europe/Berlin"}}
    invalid = {**HOURLY, "when": {"cron": "75 * * * *"}}

    preview = await intake.query(
        "schedule.preview", {"definition": nightly, "count": 1, "after": "2041-03-30T12:00:00Z"}
    )
    rejected = await intake.query("schedule.preview", {"definition": invalid})

    [time] = preview["instants"]
    assert (time["at"], time["notes"][0]["about"]) == ("2041-03-31T01:00:00Z", "dst_gap")
    assert rejected["error"]["field"] == "definition.when.cron"


async def test_explanation_is_about_the_last_scheduled_time_when_the_query_has_none(
    intake: IntakeBus,
) -> None:
    await insert_hourly(intake)
    await insert_run(intake.database, "acme", "hourly", this_hour(), late=timedelta(seconds=1))

    explanation = await explain(intake)

    assert (explanation["at"], explanation["verdict"]) == (instant_text(this_hour()), "ran")
    assert explanation["run"]["late_ms"] == 1000.0


@pytest.mark.requirement("ASK-1")
async def test_row_of_a_range_explains_each_of_its_scheduled_times(intake: IntakeBus) -> None:
    await insert_hourly(intake)
    first, last = this_hour() - 9 * HOUR, this_hour() - 3 * HOUR
    await insert_range(intake.database, "acme", "hourly", first=first, last=last, reason="missed")

    times = (first, this_hour() - 5 * HOUR, last, this_hour() - 2 * HOUR)
    explanations = [await explain(intake, at) for at in times]

    results = [(each["verdict"], each["reason"]) for each in explanations[:3]]
    assert results == [("did_not_run", "missed")] * 3
    assert explanations[3]["verdict"] == "no_record"


async def test_explanation_of_a_time_outside_the_recurrence_names_its_neighbours(
    intake: IntakeBus,
) -> None:
    await insert_hourly(intake)

    explanation = await explain(intake, this_hour() + HOUR / 2)

    assert explanation["verdict"] == "not_due"
    neighbours = (explanation["before"], explanation["after"])
    assert neighbours == (instant_text(this_hour()), instant_text(this_hour() + HOUR))


@pytest.mark.requirement("S30")
async def test_versions_are_listed_newest_first_with_their_statuses(intake: IntakeBus) -> None:
    await insert_hourly(intake)
    await insert_version(
        intake.database,
        "acme",
        HOURLY,
        number=2,
        accepted_at=this_hour(),
        effective_at=this_hour() + HOUR,
        status="pending",
        actor="ann",
    )

    response = await intake.query("schedule.versions", {"key": "hourly"})

    second, first = response["versions"]
    assert (first["version"], first["status"], first["in_force"]) == (1, "active", True)
    assert (second["version"], second["status"], second["in_force"]) == (2, "pending", False)
    assert second["effective_at"] == instant_text(this_hour() + HOUR)
    assert second["actor"] == "ann"


async def test_schedule_of_another_tenant_is_not_found(intake: IntakeBus) -> None:
    await insert_schedule(intake.database, "globex", "hourly", created_at=CREATED)

    for verb in ("schedule.why", "schedule.preview", "schedule.versions"):
        response = await intake.query(verb, {"key": "hourly"})
        assert response["error"]["code"] == "not_found"


@pytest.mark.requirement("S32")
async def test_runs_are_filtered_by_reason_by_outcome_and_by_until(intake: IntakeBus) -> None:
    database = intake.database
    await insert_run(database, "acme", "hourly", this_hour() - HOUR)
    skipped = this_hour() - 2 * HOUR
    await insert_range(database, "acme", "hourly", first=skipped, last=skipped, reason="paused")

    paused = await intake.query("run.list", {"reason": "paused"})
    failed = await intake.query("run.list", {"outcome": "failed"})
    earlier = await intake.query("run.list", {"until": instant_text(this_hour() - HOUR)})

    assert [row["reason"] for row in paused["items"]] == ["paused"]
    assert failed["items"] == []
    assert [row["state"] for row in earlier["items"]] == ["skipped"]  # `until` is exclusive


async def test_schedules_are_filtered_by_owner_and_by_name(intake: IntakeBus) -> None:
    await insert_hourly(intake)

    matching = await intake.query("schedule.list", {"owner": "team-sales", "name": "Daily sales"})
    other = await intake.query("schedule.list", {"owner": "team-other"})

    assert [row["key"] for row in matching["items"]] == ["hourly"]
    assert other["items"] == []
