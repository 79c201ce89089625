"""`harebell schedule preview`, computed locally or by a query, and `harebell why`."""

import json
from pathlib import Path

import pytest
from tests.unit.cli.conftest import CommandLine, FakeBroker
from tests.unit.cli.rows import ID, TASK, attempt_row, run_row

NIGHTLY = ("30 2 * * *", "--timezone", "Europe/Berlin", "--after", "2027-03-27T12:00:00Z")


@pytest.mark.requirement("ASK-19")
def test_preview_of_an_expression_needs_no_broker(cli: CommandLine, broker: FakeBroker) -> None:
    arguments = ("0 9 * * 1-5", "--timezone", "Europe/Berlin", "--count", "2", "-o", "json")

    result = cli("schedule", "preview", *arguments, HAREBELL_AMQP_URL="")

    assert result.exit_code == 0, result.stderr
    times = json.loads(result.stdout)
    assert [each["at"] for each in times] == ["2026-11-23T08:00:00Z", "2026-11-24T08:00:00Z"]
    assert times[0]["local"] == "2026-11-23T09:00:00+01:00"
    assert broker.connections == []


def test_preview_describes_a_clock_change(cli: CommandLine) -> None:
    result = cli("schedule", "preview", *NIGHTLY, "--count", "1")

    assert "2027-03-28T01:00:00Z" in result.stdout
    assert "2027-03-28 02:30:00" in result.stdout


@pytest.mark.requirement("ASK-19")
def test_preview_shows_the_full_form_of_a_step(cli: CommandLine) -> None:
    result = cli("schedule", "preview", "20/10 5 * * *", "--count", "2", "-o", "json")

    notes = [each["notes"] for each in json.loads(result.stdout)]
    text = "The part 20/10 of the minute means 20-59/10."
    assert notes == [[{"about": "step", "text": text}]] * 2


@pytest.mark.requirement("ASK-24")
def test_preview_says_that_debian_requires_both_day_fields(cli: CommandLine) -> None:
    result = cli("schedule", "preview", "0 0 */2 * MON", "--count", "1", "-o", "json")

    (note,) = json.loads(result.stdout)[0]["notes"]
    assert (note["about"], "Debian" in note["text"]) == ("days", True)


def test_preview_of_a_rule_shows_the_step_of_its_own_expression(
    cli: CommandLine, tmp_path: Path
) -> None:
    file = tmp_path / "both.json"
    when = {"any_of": [{"cron": "0/30 9 * * *"}, {"cron": "30 9 * * *"}, {"cron": "45 9 * * *"}]}
    file.write_text(json.dumps({"when": when, "target": TASK}))

    result = cli("schedule", "preview", "-f", str(file), "--count", "3", "-o", "json")

    texts = {each["at"][11:16]: len(each["notes"]) for each in json.loads(result.stdout)}
    assert texts == {"09:00": 1, "09:30": 1, "09:45": 0}


def test_preview_of_a_file_needs_no_broker(cli: CommandLine, tmp_path: Path) -> None:
    file = tmp_path / "often.json"
    when = {"every": "1h", "times": 2, "jitter": "30s"}
    file.write_text(json.dumps({"when": when, "target": TASK}))

    result = cli("schedule", "preview", "-f", str(file), "-o", "json", HAREBELL_AMQP_URL="")

    assert result.exit_code == 0, result.stderr
    notes = [note for each in json.loads(result.stdout) for note in each["notes"]]
    assert [note["about"] for note in notes] == ["jitter", "jitter"]


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (["75 2 * * *"], ["75", "character 1. (invalid_cron)"]),
        (["0 9 * * *", "--timezone", "Mars"], ["'Mars'", "(unknown_timezone)"]),
        (["@reboot"], ["(invalid_cron)"]),
    ],
)
def test_preview_names_the_position_when_an_expression_is_invalid(
    cli: CommandLine, arguments: list[str], parts: list[str]
) -> None:
    result = cli("schedule", "preview", *arguments)

    assert (result.exit_code, result.stdout) == (2, "")
    assert all(part in result.stderr for part in parts), result.stderr


def test_preview_of_a_stored_schedule_is_a_query(cli: CommandLine, broker: FakeBroker) -> None:
    broker.respond = lambda _: {"ok": True, "id": ID, "state": "paused", "instants": []}

    result = cli("schedule", "preview", "daily", "--count", "3")

    assert broker.requests[0].verb == "schedule.preview"
    assert broker.requests[0].body == {"key": "daily", "count": 3, "after": "2026-11-20T14:00:00Z"}
    assert (result.exit_code, result.stderr) == (3, "harebell: The schedule is paused.\n")


@pytest.mark.parametrize("name", [["why"], ["schedule", "why"]])
def test_why_prints_the_explanation_and_the_attempts(
    cli: CommandLine, broker: FakeBroker, name: list[str]
) -> None:
    text = "The run succeeded at attempt 2."
    broker.respond = lambda _: {
        "ok": True,
        "id": ID,
        "state": "active",
        "verdict": "ran",
        "text": text,
        "run": run_row(),
        "attempts": [attempt_row(error_code="http_503")],
    }

    result = cli(*name, "daily", "--at", "2026-11-20T09:00:00+01:00")

    assert broker.requests[0].body == {"key": "daily", "at": "2026-11-20T08:00:00Z"}
    assert result.exit_code == 0
    assert text in result.stdout
    assert "http_503" in result.stdout
    assert run_row()["run_id"] in result.stdout
    assert "{" not in result.stdout
