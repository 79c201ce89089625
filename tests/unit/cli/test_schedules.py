import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.unit.cli.conftest import CommandLine, FakeHarebell

ID = "6f0a7c0e-3d2b-5b53-9c1e-4d7a0f2b8e11"
SCHEDULE = {"key": "hello", "when": {"now": True}, "target": {"task": {"name": "acme.report"}}}
STORED: dict[str, Any] = {
    "ok": True,
    "id": ID,
    "key": "hello",
    "version": 1,
    "status": "created",
    "state": "active",
    "next_at": ["2026-11-20T14:00:00Z"],
    "in_flight": [],
}
REFUSED: dict[str, Any] = {
    "ok": False,
    "error": {"code": "invalid_cron", "field": "[1].when.cron", "reason": "minute 75 is over 59"},
}


def test_a_file_is_put_as_it_is(
    cli: "CommandLine", harebell: "FakeHarebell", tmp_path: Path
) -> None:
    harebell.answer = lambda _: STORED
    file = tmp_path / "hello.json"
    file.write_text(json.dumps(SCHEDULE))

    result = cli("schedule", "put", str(file))

    assert result.exit_code == 0
    assert "2026-11-20T14:00:00Z" in result.stdout
    [asked] = harebell.asked
    assert (asked.tenant, asked.verb, asked.body) == ("default", "schedule.put", SCHEDULE)


def test_standard_input_and_json_out(cli: "CommandLine", harebell: "FakeHarebell") -> None:
    harebell.answer = lambda _: STORED

    result = cli("schedule", "put", "-", "-o", "json", stdin=json.dumps(SCHEDULE))

    assert json.loads(result.stdout)["id"] == ID
    assert result.stderr == ""


def test_an_array_with_a_refused_item_is_partly_done(
    cli: "CommandLine", harebell: "FakeHarebell"
) -> None:
    harebell.answer = lambda _: [STORED, REFUSED]

    result = cli("schedule", "put", "-", "-o", "json", stdin=json.dumps([SCHEDULE, SCHEDULE]))

    assert result.exit_code == 4
    assert [answer["ok"] for answer in json.loads(result.stdout)] == [True, False]
    assert result.stderr == "harebell: [1].when.cron: minute 75 is over 59 (invalid_cron)\n"


def test_an_array_refused_whole_has_failed(cli: "CommandLine", harebell: "FakeHarebell") -> None:
    harebell.answer = lambda _: [REFUSED]

    assert cli("schedule", "put", "-", stdin=json.dumps([SCHEDULE])).exit_code == 1


def test_a_refusal_is_one_line_with_field_and_reason(
    cli: "CommandLine", harebell: "FakeHarebell"
) -> None:
    harebell.answer = lambda _: REFUSED

    result = cli("schedule", "put", "-", stdin=json.dumps(SCHEDULE))

    assert result.exit_code == 1
    assert result.stdout == ""
    assert result.stderr == "harebell: [1].when.cron: minute 75 is over 59 (invalid_cron)\n"


@pytest.mark.parametrize("text", ["{", "3", "[]", "[3]", '{"a": 99999999999999999999}'])
def test_what_is_no_document_is_wrong_usage_and_not_sent(
    cli: "CommandLine", harebell: "FakeHarebell", text: str
) -> None:
    result = cli("schedule", "put", "-", stdin=text)

    assert result.exit_code == 2
    assert result.stderr.startswith("harebell: ")
    assert harebell.asked == []


def test_a_missing_file_is_wrong_usage(cli: "CommandLine") -> None:
    result = cli("schedule", "put", "nowhere.json")

    assert result.exit_code == 2
    assert "nowhere.json" in result.stderr


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["daily"], {"key": "daily"}),
        ([ID], {"id": ID}),
        (["--id", ID], {"id": ID}),
        (["--key", ID], {"key": ID}),
    ],
)
@pytest.mark.parametrize("verb", ["pause", "resume", "cancel", "trigger"])
def test_an_order_names_its_schedule(
    cli: "CommandLine", harebell: "FakeHarebell", verb: str, words: list[str], named: dict[str, str]
) -> None:
    harebell.answer = lambda _: STORED | {"status": verb}

    result = cli("schedule", verb, *words, "--note", "migration")

    assert result.exit_code == 0
    assert harebell.asked[0].verb == f"schedule.{verb}"
    assert harebell.asked[0].body == named | {"note": "migration"}


@pytest.mark.parametrize("words", [[], ["daily", "--id", ID], ["--key", "a", "--id", ID]])
def test_a_schedule_not_named_exactly_once_is_wrong_usage(
    cli: "CommandLine", harebell: "FakeHarebell", words: list[str]
) -> None:
    assert cli("schedule", "pause", *words).exit_code == 2
    assert harebell.asked == []


def test_runs_already_claimed_are_named(cli: "CommandLine", harebell: "FakeHarebell") -> None:
    harebell.answer = lambda _: STORED | {"in_flight": [f"{ID}@20261120T140000000Z"]}

    result = cli("schedule", "cancel", "hello")

    assert result.exit_code == 0
    assert "@20261120T140000000Z had already been claimed" in result.stderr


def test_a_list_that_is_empty_matched_nothing(cli: "CommandLine", harebell: "FakeHarebell") -> None:
    result = cli("schedule", "list", "--tag", "reports", "--limit", "7", "-o", "json")

    assert (result.exit_code, json.loads(result.stdout)) == (3, [])
    assert harebell.asked[0].exchange == "harebell.queries"
    assert harebell.asked[0].body == {"tag": "reports", "limit": 7}


def test_what_is_not_found_matched_nothing(cli: "CommandLine", harebell: "FakeHarebell") -> None:
    harebell.answer = lambda _: {
        "ok": False,
        "error": {"code": "not_found", "field": "key", "reason": "there is no schedule 'x'"},
    }

    result = cli("schedule", "get", "x")

    assert result.exit_code == 3
    assert result.stderr == "harebell: key: there is no schedule 'x' (not_found)\n"


def test_what_others_wrote_cannot_steer_the_terminal(
    cli: "CommandLine", harebell: "FakeHarebell"
) -> None:
    harebell.answer = lambda _: {
        "ok": True,
        "items": [{"key": "a\x1b[2Jb[red]", "state": "active"}],
    }

    result = cli("schedule", "list")

    assert r"a\x1b[2Jb[red]" in result.stdout
    assert "\x1b" not in result.stdout


def test_a_table_is_never_folded(cli: "CommandLine", harebell: "FakeHarebell") -> None:
    key = "k" * 250
    harebell.answer = lambda _: {"ok": True, "items": [{"key": key, "id": ID, "state": "active"}]}

    header, row = cli("schedule", "list").stdout.splitlines()

    assert header.split()[:3] == ["key", "id", "state"]
    assert row.split()[:3] == [key, ID, "active"]
