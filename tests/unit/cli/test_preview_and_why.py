"""Previews computed here and asked for, and whys."""

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.unit.cli.conftest import CommandLine, FakeHarebell

NIGHTLY = ("30 2 * * *", "--timezone", "Europe/Berlin", "--after", "2027-03-27T12:00:00Z")


@pytest.mark.requirement("ASK-19")
def test_an_expression_is_previewed_without_a_broker(
    cli: "CommandLine", harebell: "FakeHarebell"
) -> None:
    result = cli(
        "schedule", "preview", "0 9 * * 1-5", "--timezone", "Europe/Berlin", "--count", "2",
        "-o", "json", HAREBELL_AMQP_URL="",
    )  # fmt: skip

    assert result.exit_code == 0, result.stderr
    instants = json.loads(result.stdout)
    assert [each["at"] for each in instants] == ["2026-11-23T08:00:00Z", "2026-11-24T08:00:00Z"]
    assert instants[0]["local"] == "2026-11-23T09:00:00+01:00"
    assert harebell.connected_to == []


def test_what_the_clocks_do_is_told_in_words(cli: "CommandLine") -> None:
    result = cli("schedule", "preview", *NIGHTLY, "--count", "1")

    assert "2027-03-28T01:00:00Z" in result.stdout
    assert "moved, as the clocks skip 2027-03-28 02:30:00" in result.stdout


def test_a_file_is_previewed_without_a_broker(cli: "CommandLine", tmp_path: Path) -> None:
    file = tmp_path / "often.json"
    when = {"every": "1h", "times": 2, "jitter": "30s"}
    file.write_text(json.dumps({"when": when, "target": {"task": {"name": "acme.report"}}}))

    result = cli("schedule", "preview", "-f", str(file), HAREBELL_AMQP_URL="")

    assert result.exit_code == 0, result.stderr
    assert result.stdout.count("starts up to 30s later") == 2


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["75 2 * * *"], "minute 75 is over 59 (at character 1) (invalid_cron)"),
        (["0 9 * * *", "--timezone", "Mars"], "'Mars' is not an IANA time zone (unknown_timezone)"),
        (["@reboot"], "invalid_cron"),
    ],
)
def test_a_bad_expression_is_wrong_usage_and_says_where(
    cli: "CommandLine", words: list[str], said: str
) -> None:
    result = cli("schedule", "preview", *words)

    assert (result.exit_code, result.stdout) == (2, "")
    assert said in result.stderr


def test_a_stored_schedule_is_asked_about(cli: "CommandLine", harebell: "FakeHarebell") -> None:
    harebell.answer = lambda _: {"ok": True, "item": {"state": "paused", "instants": []}}

    result = cli("schedule", "preview", "daily", "--count", "3")

    assert harebell.asked[0].verb == "schedule.preview"
    assert harebell.asked[0].body == {"key": "daily", "count": 3, "after": "2026-11-20T14:00:00Z"}
    assert (result.exit_code, result.stderr) == (3, "harebell: the schedule is paused\n")


def test_why_asks_about_an_instant_and_shows_the_attempts(
    cli: "CommandLine", harebell: "FakeHarebell"
) -> None:
    attempts = [{"replay_number": 0, "number": 1, "outcome": "failed", "error_code": "http_503"}]
    told = {"verdict": "ran", "words": "it succeeded at attempt 2", "attempts": attempts}
    harebell.answer = lambda _: {"ok": True, "item": told}

    result = cli("why", "daily", "--at", "2026-11-20T09:00:00+01:00")

    assert harebell.asked[0].body == {"key": "daily", "at": "2026-11-20T08:00:00Z"}
    assert result.exit_code == 0
    assert "it succeeded at attempt 2" in result.stdout
    assert "http_503" in result.stdout
