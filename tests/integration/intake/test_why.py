"""Previews, whys and histories on real servers, from rows as the ticker leaves them."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from tests.integration.intake.conftest import Street
from tests.integration.intake.ledger import keep_range, keep_run, keep_schedule, keep_version

from harebell.contract.types import instant_text, truncate_ms

pytestmark = [pytest.mark.broker, pytest.mark.postgres]

HOUR = timedelta(hours=1)
LONG_AGO = truncate_ms(datetime.now(UTC)).replace(minute=0, second=0, microsecond=0) - timedelta(
    days=2
)
TASK = {"task": {"name": "harebell.echo"}}
HOURLY: dict[str, Any] = {"key": "hourly", "when": {"cron": "0 * * * *"}, "target": TASK}


def top() -> datetime:
    """Of the hour now: a suite may run across one."""
    return datetime.now(UTC).replace(minute=0, second=0, microsecond=0)


async def hourly(street: Street, **given: Any) -> None:
    fields: dict[str, Any] = {"definition": HOURLY, "planned_until": top(), **given}
    await keep_schedule(street.database, "acme", "hourly", created_at=LONG_AGO, **fields)


async def why(street: Street, at: datetime | None = None) -> dict[str, Any]:
    asked = {} if at is None else {"at": instant_text(at)}
    item: dict[str, Any] = (await street.ask("schedule.why", {"key": "hourly", **asked}))["item"]
    return item


@pytest.mark.requirement("S32")
async def test_a_stored_schedule_is_previewed_as_it_stands(intake: Street) -> None:
    await hourly(intake, state="paused", skips=[top() + 2 * HOUR])

    item = (await intake.ask("schedule.preview", {"key": "hourly", "count": 3}))["item"]

    assert item["state"] == "paused"
    assert [each["at"] for each in item["instants"]] == [
        instant_text(top() + hours * HOUR) for hours in (1, 2, 3)
    ]
    assert [note["about"] for note in item["instants"][1]["notes"]] == ["skipped"]


@pytest.mark.requirement("ASK-19")
async def test_what_is_not_stored_is_previewed_and_refused_as_a_put_would_be(
    intake: Street,
) -> None:
    after = "2026-03-28T12:00:00Z"
    nightly = {**HOURLY, "when": {"cron": "30 2 * * *", "timezone": "Europe/Berlin"}}

    shown = await intake.ask(
        "schedule.preview", {"definition": nightly, "count": 1, "after": "2030-03-30T12:00:00Z"}
    )
    refused = await intake.ask(
        "schedule.preview",
        {"definition": {**HOURLY, "when": {"cron": "75 * * * *"}}, "after": after},
    )

    [instant] = shown["item"]["instants"]
    assert (instant["at"], instant["notes"][0]["about"]) == ("2030-03-31T01:00:00Z", "dst_gap")
    assert refused["error"]["field"] == "definition.when.cron"


async def test_the_last_instant_is_asked_about_when_none_is_given(intake: Street) -> None:
    await hourly(intake)
    await keep_run(intake.database, "acme", "hourly", top(), late=timedelta(seconds=1))

    item = await why(intake)

    assert (item["at"], item["verdict"]) == (instant_text(top()), "ran")
    assert item["run"]["late_ms"] == 1000.0


@pytest.mark.requirement("ASK-1")
async def test_a_row_that_stands_for_a_range_answers_for_its_instants(intake: Street) -> None:
    """Ask 1: an instant that did not run says why, though a long pause cost one row."""
    await hourly(intake)
    first, last = top() - 9 * HOUR, top() - 3 * HOUR
    await keep_range(intake.database, "acme", "hourly", first, last, reason="catch_up")

    found = [await why(intake, at) for at in (first, top() - 5 * HOUR, last, top() - 2 * HOUR)]

    assert [(each["verdict"], each["reason"]) for each in found[:3]] == [
        ("did_not_run", "catch_up")
    ] * 3
    assert found[3]["verdict"] == "no_record"


async def test_an_instant_that_the_timetable_has_not_names_its_neighbours(intake: Street) -> None:
    await hourly(intake)

    item = await why(intake, top() + HOUR / 2)

    assert item["verdict"] == "not_due"
    assert (item["before"], item["after"]) == (instant_text(top()), instant_text(top() + HOUR))


@pytest.mark.requirement("S30")
async def test_versions_are_told_newest_first_with_their_fates(intake: Street) -> None:
    await hourly(intake)
    later = instant_text(top() + HOUR)
    await keep_version(intake.database, "acme", HOURLY, 2, top(), top() + HOUR, "pending", "ann")

    item = (await intake.ask("schedule.versions", {"key": "hourly"}))["item"]

    first, second = item["versions"][1], item["versions"][0]
    assert (first["version"], first["status"], first["in_force"]) == (1, "active", True)
    assert (second["version"], second["status"], second["in_force"]) == (2, "pending", False)
    assert (second["effective_at"], second["actor"]) == (later, "ann")


async def test_another_tenants_schedule_tells_nothing(intake: Street) -> None:
    await keep_schedule(intake.database, "globex", "hourly", created_at=LONG_AGO)

    for verb in ("schedule.why", "schedule.preview", "schedule.versions"):
        answer = await intake.ask(verb, {"key": "hourly"})
        assert answer["error"]["code"] == "not_found"


@pytest.mark.requirement("S32")
async def test_runs_are_found_by_reason_outcome_and_until(intake: Street) -> None:
    database = intake.database
    await keep_run(database, "acme", "hourly", top() - HOUR)
    await keep_range(
        database, "acme", "hourly", top() - 2 * HOUR, top() - 2 * HOUR, reason="paused"
    )

    paused = await intake.ask("run.list", {"reason": "paused"})
    failed = await intake.ask("run.list", {"outcome": "failed"})
    older = await intake.ask("run.list", {"until": instant_text(top() - 2 * HOUR)})

    assert [row["reason"] for row in paused["items"]] == ["paused"]
    assert failed["items"] == []
    assert [row["state"] for row in older["items"]] == ["skipped"]


async def test_schedules_are_found_by_owner_and_by_name(intake: Street) -> None:
    await hourly(intake)

    found = await intake.ask("schedule.list", {"owner": "team-sales", "name": "Daily sales"})
    none = await intake.ask("schedule.list", {"owner": "team-other"})

    assert [row["key"] for row in found["items"]] == ["hourly"]
    assert none["items"] == []
