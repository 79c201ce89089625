"""Queries on real servers: each tenant sees its own, in bounded pages, newest first."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from tests.integration.intake.conftest import Street
from tests.integration.intake.ledger import keep_attempt, keep_run, keep_schedule

from harebell.contract import amqp_names
from harebell.contract.types import instant_text, truncate_ms

pytestmark = [pytest.mark.broker, pytest.mark.postgres]

NOW = truncate_ms(datetime.now(UTC))
HOUR = timedelta(hours=1)


async def pages(street: Street, verb: str, **asked: Any) -> list[list[dict[str, Any]]]:
    found = []
    after: dict[str, str] = {}
    while True:
        page = await street.ask(verb, {**asked, **after})
        found.append(page["items"])
        if "next" not in page:
            return found
        after = {"after": page["next"]}


async def test_a_schedule_is_shown_by_key_and_by_id_with_its_definition(intake: Street) -> None:
    id_ = await keep_schedule(intake.database, "acme", "daily", created_at=NOW, tags=["sales"])

    by_key = await intake.ask("schedule.get", {"key": "daily"})
    by_id = await intake.ask("schedule.get", {"id": str(id_)})

    item = by_key["item"]
    assert by_id["item"] == item
    assert (item["id"], item["key"], item["tenant"]) == (str(id_), "daily", "acme")
    assert (item["state"], item["version"], item["tags"]) == ("active", 1, ["sales"])
    assert item["created_at"] == instant_text(NOW)
    assert item["definition"] == {"key": "daily", "when": {"every": "1h"}}


async def test_the_next_run_is_shown_though_it_is_in_the_broker_already(intake: Street) -> None:
    handed_over = [NOW - HOUR, NOW + HOUR]
    await keep_schedule(
        intake.database,
        "acme",
        "often",
        created_at=NOW,
        next_at=NOW + 2 * HOUR,
        open_runs=handed_over,
    )

    answer = await intake.ask("schedule.get", {"key": "often"})

    assert answer["item"]["next_at"] == instant_text(NOW + HOUR)


@pytest.mark.requirement("S18", "ASK-16")
async def test_what_belongs_to_another_tenant_is_not_found(intake: Street) -> None:
    id_ = await keep_schedule(intake.database, "globex", "daily", created_at=NOW)
    run = await keep_run(intake.database, "globex", "daily", NOW - HOUR)

    answers = [
        await intake.ask("schedule.get", {"key": "daily"}),
        await intake.ask("schedule.get", {"id": str(id_)}),
        await intake.ask("run.get", {"run_id": str(run)}),
    ]
    listed = [
        await intake.ask("schedule.list", {}),
        await intake.ask("run.list", {}),
        await intake.ask("run.list", {"id": str(id_)}),
    ]

    faults = [(answer["error"]["code"], answer["error"]["field"]) for answer in answers]
    assert faults == [("not_found", "key"), ("not_found", "id"), ("not_found", "run_id")]
    assert [page["items"] for page in listed] == [[], [], []]


async def test_schedules_are_listed_newest_first_page_by_page(intake: Street) -> None:
    for number in range(5):
        made_at = NOW - HOUR * (number // 2)  # some at the same instant
        await keep_schedule(intake.database, "acme", f"key-{number}", created_at=made_at)

    found = await pages(intake, "schedule.list", limit=2)

    assert [len(page) for page in found] == [2, 2, 1]
    rows = [row for page in found for row in page]
    assert {row["key"] for row in rows} == {f"key-{number}" for number in range(5)}
    made = [row["created_at"] for row in rows]
    assert made == sorted(made, reverse=True)
    assert "definition" not in rows[0]


@pytest.mark.requirement("S17")
async def test_schedules_are_found_by_tag_and_by_state(intake: Street) -> None:
    for key, state, tags in (("a", "active", ["x"]), ("b", "paused", ["x"]), ("c", "active", [])):
        await keep_schedule(intake.database, "acme", key, created_at=NOW, state=state, tags=tags)

    tagged = await intake.ask("schedule.list", {"tag": "x"})
    paused = await intake.ask("schedule.list", {"state": "paused"})

    assert {row["key"] for row in tagged["items"]} == {"a", "b"}
    assert [row["key"] for row in paused["items"]] == ["b"]


@pytest.mark.requirement("S32", "S34")
async def test_a_run_is_shown_with_its_attempts_and_how_late_the_first_began(
    intake: Street,
) -> None:
    await keep_schedule(intake.database, "acme", "daily", created_at=NOW)
    run = await keep_run(
        intake.database, "acme", "daily", NOW - HOUR, state="retrying", attempt=2, late=HOUR / 2
    )
    for number in (1, 2):
        started = run.scheduled_for + timedelta(milliseconds=1.5) * number**9
        await keep_attempt(intake.database, run, number, started)

    item = (await intake.ask("run.get", {"run_id": str(run)}))["item"]

    assert (item["run_id"], item["key"], item["state"]) == (str(run), "daily", "retrying")
    assert item["late_ms"] == 1.5
    assert [(each["number"], each["http_status"]) for each in item["attempts"]] == [
        (1, 503),
        (2, 503),
    ]


@pytest.mark.requirement("S37")
async def test_a_run_that_waits_says_by_which_route_and_why(intake: Street) -> None:
    await keep_schedule(intake.database, "acme", "daily", created_at=NOW)
    waits = await keep_run(intake.database, "acme", "daily", NOW, state="staged", attempt=0)
    rests = await keep_run(intake.database, "acme", "daily", NOW - HOUR, state="retrying")
    ended = await keep_run(intake.database, "acme", "daily", NOW - 2 * HOUR)
    await intake.database.execute(
        "UPDATE runs SET staged_at = due_at - interval '1 minute' WHERE state = 'staged'"
    )

    shown = {row["run_id"]: row for row in (await intake.ask("run.list", {}))["items"]}

    assert shown[str(waits)]["route"] == "hot"
    assert shown[str(waits)]["tier_reason"] == "The run waits in harebell.delay.57082."
    assert shown[str(rests)]["route"] == "cold"
    assert shown[str(ended)]["route"] is None


async def test_runs_are_listed_newest_first_page_by_page(intake: Street) -> None:
    expected = []
    for number in range(7):
        instant = NOW - HOUR * number
        run = await keep_run(intake.database, "acme", "daily", instant, late=timedelta(seconds=2))
        expected.append(str(run))

    found = await pages(intake, "run.list", limit=3)

    assert [len(page) for page in found] == [3, 3, 1]
    assert [row["run_id"] for page in found for row in page] == expected
    assert {row["late_ms"] for page in found for row in page} == {2000.0}


@pytest.mark.requirement("S32")
async def test_runs_are_found_by_schedule_by_state_and_since(intake: Street) -> None:
    database = intake.database
    recent = await keep_run(database, "acme", "daily", NOW - HOUR, state="dead")
    earlier = await keep_run(database, "acme", "daily", NOW - 30 * HOUR)
    other = await keep_run(database, "acme", "other", NOW - HOUR)
    longer = instant_text(NOW - 40 * HOUR)

    found = {
        "all": await intake.ask("run.list", {}),
        "dead": await intake.ask("run.list", {"state": "dead"}),
        "daily": await intake.ask("run.list", {"key": "daily", "since": longer}),
        "other": await intake.ask("run.list", {"id": str(other.schedule_id)}),
    }

    runs = {name: {row["run_id"] for row in page["items"]} for name, page in found.items()}
    assert runs == {
        "all": {str(recent), str(other)},
        "dead": {str(recent)},
        "daily": {str(recent), str(earlier)},
        "other": {str(other)},
    }


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
        ("run.list", {"key": "a", "id": "5f0c1a52-7d4f-5c1b-9d80-0d3c1c3f7a11"},
         "invalid_reference", None),
        ("run.forget", {}, "unknown_query", None),
        ("run.list", [{}], "invalid", None),
    ],
)  # fmt: skip
async def test_a_bad_query_is_refused_with_field_and_reason(
    intake: Street, verb: str, body: Any, code: str, field: str | None
) -> None:
    answer = await intake.ask(verb, body)

    assert answer["ok"] is False
    assert (answer["error"]["code"], answer["error"].get("field")) == (code, field)
    assert answer["error"]["reason"]


async def test_a_query_that_is_not_json_is_answered_and_kept(intake: Street) -> None:
    answer = await intake.ask("run.list", b"since yesterday")
    dead = await intake.dead()

    assert answer["error"]["code"] == dead["reason"] == "not_json"


async def test_a_question_without_anybody_to_answer_is_dropped(intake: Street) -> None:
    await intake.send("schedule.list", {}, exchange=amqp_names.QUERIES, reply_to=None)
    await intake.send("schedule.list", {}, exchange=amqp_names.QUERIES, reply_to="gone")

    answer = await intake.ask("schedule.list", {})

    assert answer == {"ok": True, "items": []}
