"""Tests of queries on real servers: each tenant reads its own rows, in pages, newest first."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from tests.integration.intake.conftest import IntakeBus
from tests.integration.intake.ledger import insert_attempt, insert_run, insert_schedule

from harebell.contract import amqp_names
from harebell.contract.types import instant_text, truncate_ms

pytestmark = [pytest.mark.broker, pytest.mark.postgres]

NOW = truncate_ms(datetime.now(UTC))
HOUR = timedelta(hours=1)


async def pages(bus: IntakeBus, verb: str, **query: Any) -> list[list[dict[str, Any]]]:
    """Return the items of each page of a list."""
    result = []
    after: dict[str, str] = {}
    while True:
        page = await bus.query(verb, {**query, **after})
        result.append(page["items"])
        if "next" not in page:
            return result
        after = {"after": page["next"]}


async def test_schedule_is_returned_by_key_and_by_id_with_its_definition(
    intake: IntakeBus,
) -> None:
    id_ = await insert_schedule(intake.database, "acme", "daily", created_at=NOW, tags=["sales"])

    by_key = await intake.query("schedule.get", {"key": "daily"})
    by_id = await intake.query("schedule.get", {"id": str(id_)})

    assert by_id == by_key
    assert by_key["ok"]
    assert (by_key["id"], by_key["key"], by_key["tenant"]) == (str(id_), "daily", "acme")
    assert (by_key["state"], by_key["version"], by_key["tags"]) == ("active", 1, ["sales"])
    assert by_key["created_at"] == instant_text(NOW)
    assert by_key["definition"] == {"key": "daily", "when": {"every": "1h"}}


async def test_next_run_of_a_schedule_may_be_staged_already(intake: IntakeBus) -> None:
    await insert_schedule(
        intake.database,
        "acme",
        "often",
        created_at=NOW,
        next_at=NOW + 2 * HOUR,
        open_runs=[NOW - HOUR, NOW + HOUR],
    )

    response = await intake.query("schedule.get", {"key": "often"})

    assert response["next_at"] == instant_text(NOW + HOUR)


@pytest.mark.requirement("S18", "ASK-16")
async def test_row_of_another_tenant_is_not_found(intake: IntakeBus) -> None:
    id_ = await insert_schedule(intake.database, "globex", "daily", created_at=NOW)
    run = await insert_run(intake.database, "globex", "daily", NOW - HOUR)

    responses = [
        await intake.query("schedule.get", {"key": "daily"}),
        await intake.query("schedule.get", {"id": str(id_)}),
        await intake.query("run.get", {"run_id": str(run)}),
    ]
    lists = [
        await intake.query("schedule.list", {}),
        await intake.query("run.list", {}),
        await intake.query("run.list", {"id": str(id_)}),
    ]

    errors = [(each["error"]["code"], each["error"]["field"]) for each in responses]
    assert errors == [("not_found", "key"), ("not_found", "id"), ("not_found", "run_id")]
    assert [page["items"] for page in lists] == [[], [], []]


async def test_schedules_are_listed_newest_first_in_pages(intake: IntakeBus) -> None:
    for number in range(5):
        created_at = NOW - HOUR * (number // 2)  # some at the same time
        await insert_schedule(intake.database, "acme", f"key-{number}", created_at=created_at)

    result = await pages(intake, "schedule.list", limit=2)

    assert [len(page) for page in result] == [2, 2, 1]
    rows = [row for page in result for row in page]
    assert {row["key"] for row in rows} == {f"key-{number}" for number in range(5)}
    created = [row["created_at"] for row in rows]
    assert created == sorted(created, reverse=True)
    assert "definition" not in rows[0]


@pytest.mark.requirement("S17")
async def test_schedules_are_filtered_by_tag_and_by_state(intake: IntakeBus) -> None:
    for key, state, tags in (("a", "active", ["x"]), ("b", "paused", ["x"]), ("c", "active", [])):
        await insert_schedule(intake.database, "acme", key, created_at=NOW, state=state, tags=tags)

    tagged = await intake.query("schedule.list", {"tag": "x"})
    paused = await intake.query("schedule.list", {"state": "paused"})
    active = await intake.query("schedule.list", {"state": "active"})

    assert {row["key"] for row in tagged["items"]} == {"a", "b"}
    assert [row["key"] for row in paused["items"]] == ["b"]
    assert {row["key"] for row in active["items"]} == {"a", "c"}


@pytest.mark.requirement("S34")
async def test_deleted_schedule_is_in_no_list_except_with_its_state(intake: IntakeBus) -> None:
    for key, state in (("a", "active"), ("b", "deleted")):
        await insert_schedule(intake.database, "acme", key, created_at=NOW, state=state)

    listed = await intake.query("schedule.list", {})
    deleted = await intake.query("schedule.list", {"state": "deleted"})
    shown = await intake.query("schedule.get", {"key": "b"})
    previewed = await intake.query("schedule.preview", {"key": "b"})
    versions = await intake.query("schedule.versions", {"key": "b"})

    assert [row["key"] for row in listed["items"]] == ["a"]
    assert [row["key"] for row in deleted["items"]] == ["b"]
    assert (shown["error"]["code"], shown["error"]["field"]) == ("not_found", "key")
    assert previewed["error"]["code"] == "not_found"
    assert [version["version"] for version in versions["versions"]] == [1]


@pytest.mark.requirement("S32", "S34")
async def test_run_is_returned_with_its_attempts_and_the_lateness_of_the_first(
    intake: IntakeBus,
) -> None:
    await insert_schedule(intake.database, "acme", "daily", created_at=NOW)
    run = await insert_run(
        intake.database, "acme", "daily", NOW - HOUR, state="retrying", attempt=2, late=HOUR / 2
    )
    for number in (1, 2):
        started_at = run.scheduled_for + timedelta(milliseconds=1.5) * number**9
        await insert_attempt(intake.database, run, number, started_at)

    response = await intake.query("run.get", {"run_id": str(run)})

    assert (response["run_id"], response["key"]) == (str(run), "daily")
    assert (response["state"], response["late_ms"]) == ("retrying", 1.5)
    assert [(each["number"], each["http_status"]) for each in response["attempts"]] == [
        (1, 503),
        (2, 503),
    ]


@pytest.mark.requirement("S37")
async def test_waiting_run_has_its_tier_and_the_reason(intake: IntakeBus) -> None:
    await insert_schedule(intake.database, "acme", "daily", created_at=NOW)
    staged = await insert_run(intake.database, "acme", "daily", NOW, state="staged", attempt=0)
    retrying = await insert_run(intake.database, "acme", "daily", NOW - HOUR, state="retrying")
    ended = await insert_run(intake.database, "acme", "daily", NOW - 2 * HOUR)
    await intake.database.execute(
        "UPDATE runs SET staged_at = due_at - interval '1 minute' WHERE state = 'staged'"
    )

    page = await intake.query("run.list", {})

    rows = {row["run_id"]: row for row in page["items"]}
    assert rows[str(staged)]["tier"] == "hot"
    assert "harebell.delay.057082" in rows[str(staged)]["tier_reason"]
    assert rows[str(retrying)]["tier"] == "cold"
    assert "tier" not in rows[str(ended)]


async def test_runs_are_listed_newest_first_in_pages(intake: IntakeBus) -> None:
    expected = []
    for number in range(7):
        time = NOW - HOUR * number
        run = await insert_run(intake.database, "acme", "daily", time, late=timedelta(seconds=2))
        expected.append(str(run))

    result = await pages(intake, "run.list", limit=3)

    assert [len(page) for page in result] == [3, 3, 1]
    assert [row["run_id"] for page in result for row in page] == expected
    assert {row["late_ms"] for page in result for row in page} == {2000.0}


@pytest.mark.requirement("S32")
async def test_runs_are_filtered_by_schedule_by_state_and_by_since(intake: IntakeBus) -> None:
    database = intake.database
    recent = await insert_run(database, "acme", "daily", NOW - HOUR, state="dead")
    earlier = await insert_run(database, "acme", "daily", NOW - 30 * HOUR)
    other = await insert_run(database, "acme", "other", NOW - HOUR)
    since = instant_text(earlier.scheduled_for)  # inclusive

    responses = {
        "all": await intake.query("run.list", {}),
        "dead": await intake.query("run.list", {"state": "dead"}),
        "daily": await intake.query("run.list", {"key": "daily", "since": since}),
        "other": await intake.query("run.list", {"id": str(other.schedule_id)}),
    }

    runs = {name: {row["run_id"] for row in page["items"]} for name, page in responses.items()}
    assert runs == {
        "all": {str(recent), str(other)},
        "dead": {str(recent)},
        "daily": {str(recent), str(earlier)},
        "other": {str(other)},
    }


@pytest.mark.requirement("S32")
async def test_runs_are_filtered_by_owner_name_and_tag_of_their_schedule(
    intake: IntakeBus,
) -> None:
    database = intake.database
    await insert_schedule(database, "acme", "daily", created_at=NOW, tags=["eu"])
    await insert_schedule(database, "acme", "other", created_at=NOW, owner="team-ops", name="Other")
    daily = await insert_run(database, "acme", "daily", NOW - HOUR)
    other = await insert_run(database, "acme", "other", NOW - HOUR)
    await insert_run(database, "acme", "gone", NOW - HOUR)  # without its schedule

    pages = {
        "tag": await intake.query("run.list", {"tag": "eu"}),
        "owner": await intake.query("run.list", {"owner": "team-ops"}),
        "name": await intake.query("run.list", {"name": "Daily sales"}),
        "both": await intake.query("run.list", {"owner": "team-ops", "name": "Daily sales"}),
    }

    runs = {name: [row["run_id"] for row in page["items"]] for name, page in pages.items()}
    assert runs == {"tag": [str(daily)], "owner": [str(other)], "name": [str(daily)], "both": []}


@pytest.mark.requirement("S32")
async def test_until_alone_lists_runs_backwards_from_there_in_pages(intake: IntakeBus) -> None:
    days = timedelta(days=1)
    recent, old, older = [
        await insert_run(intake.database, "acme", "weekly", NOW - age)
        for age in (HOUR, 3 * days, 5 * days)
    ]

    before_recent = await pages(
        intake, "run.list", until=instant_text(recent.scheduled_for), limit=1
    )
    future = await pages(intake, "run.list", until=instant_text(NOW + 400 * days), limit=2)
    last_day = await pages(intake, "run.list", limit=2)

    listed = [
        [row["run_id"] for page in each for row in page]
        for each in (before_recent, future, last_day)
    ]
    assert listed == [[str(old), str(older)], [str(recent), str(old), str(older)], [str(recent)]]
    assert [len(page) for page in before_recent] == [1, 1]


@pytest.mark.parametrize(
    ("verb", "body", "code", "field"),
    [
        ("schedule.get", {}, "invalid_reference", None),
        ("schedule.get", {"key": "a", "colour": 1}, "unknown_field", "colour"),
        ("schedule.list", {"limit": 501}, "invalid", "limit"),
        ("schedule.list", {"after": "page two"}, "invalid_cursor", "after"),
        ("run.get", {"run_id": "nonsense"}, "invalid_run_id", "run_id"),
        ("run.list", {"state": "sleeping"}, "invalid_state", "state"),
        ("run.list", {"since": "2026-01-01T00:00:00"}, "naive_instant", "since"),
        (
            "run.list",
            {"key": "a", "id": "5f0c1a52-7d4f-5c1b-9d80-0d3c1c3f7a11"},
            "invalid_reference",
            None,
        ),
        ("run.forget", {}, "unknown_query", None),
        ("run.list", [{}], "invalid", None),
    ],
)
async def test_invalid_query_is_rejected_with_field_and_reason(
    intake: IntakeBus, verb: str, body: Any, code: str, field: str | None
) -> None:
    response = await intake.query(verb, body)

    assert response["ok"] is False
    assert (response["error"]["code"], response["error"].get("field")) == (code, field)
    assert response["error"]["reason"]


async def test_query_that_is_not_json_gets_a_response_and_becomes_a_dead_letter(
    intake: IntakeBus,
) -> None:
    response = await intake.query("run.list", b"since yesterday")
    dead_letter = await intake.next_dead_letter()

    assert response["error"]["code"] == dead_letter["reason"] == "not_json"


async def test_query_without_a_reply_queue_delays_no_other_query(intake: IntakeBus) -> None:
    await intake.send("schedule.list", {}, exchange=amqp_names.QUERIES, reply_to=None)
    await intake.send("schedule.list", {}, exchange=amqp_names.QUERIES, reply_to="acme.gone")

    response = await intake.query("schedule.list", {})

    assert response == {"ok": True, "items": []}
