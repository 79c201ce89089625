import json
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.unit.cli.conftest import CommandLine, FakeHarebell

ONE = "6f0a7c0e-3d2b-5b53-9c1e-4d7a0f2b8e11"
TWO = "6f0a7c0e-3d2b-5b53-9c1e-4d7a0f2b8e12"


@pytest.mark.parametrize(
    ("results", "code"),
    [
        ({ONE: "replayed", TWO: "replayed"}, 0),
        ({ONE: "replayed", TWO: "not_replayable"}, 4),
        ({ONE: "replayed", TWO: "not_found"}, 4),
        ({ONE: "not_replayable", TWO: "not_found"}, 1),
        ({ONE: "not_found", TWO: "not_found"}, 3),
    ],
)
def test_the_exit_code_says_how_many_were_replayed(
    cli: "CommandLine", harebell: "FakeHarebell", results: dict[str, str], code: int
) -> None:
    harebell.answer = lambda _: {"ok": True, "results": results}

    result = cli("dlq", "replay", ONE, TWO, "--note", "fixed", "-o", "json")

    assert result.exit_code == code
    assert {row["id"]: row["status"] for row in json.loads(result.stdout)} == results
    assert harebell.asked[0].body == {"ids": [ONE, TWO], "note": "fixed"}


@pytest.mark.parametrize(
    "words", [[], [ONE, "--all"], [ONE, "--key", "hello"], ["no-uuid"], ["--all", "--rate", "5/x"]]
)
def test_a_replay_of_what_is_not_named_well_is_wrong_usage(
    cli: "CommandLine", harebell: "FakeHarebell", words: list[str]
) -> None:
    assert cli("dlq", "replay", *words).exit_code == 2
    assert harebell.asked == []


@pytest.mark.requirement("S111")
def test_a_list_can_be_of_those_that_are_asked_for(
    cli: "CommandLine", harebell: "FakeHarebell"
) -> None:
    chosen = ("--group", ONE, "--tag", "reports", "--error", "http_503", "--older-than", "2h")

    cli("dlq", "list", *chosen, "--newer-than", "1d", "--replayed", "--state", "all")

    assert harebell.asked[0].body == {
        "limit": 50,
        "state": "all",
        "group": ONE,
        "tag": "reports",
        "error": "http_503",
        "before": "2026-11-20T12:00:00Z",
        "since": "2026-11-19T14:00:00Z",
        "replayed": True,
    }


def test_a_drop_says_what_became_of_each(cli: "CommandLine", harebell: "FakeHarebell") -> None:
    harebell.answer = lambda _: {"ok": True, "results": {ONE: "dropped"}}

    result = cli("dlq", "drop", ONE)

    assert result.exit_code == 0
    assert result.stdout.split() == ["id", "status", ONE, "dropped"]


@pytest.mark.requirement("S111")
def test_a_dead_letter_is_shown_as_a_person_reads_it(
    cli: "CommandLine", harebell: "FakeHarebell"
) -> None:
    attempt = {"number": 1, "outcome": "failed", "http_status": 503, "error": "busy"}
    story = {"target": {"task": {"name": "report"}}, "attempts": [attempt]}
    letter = {"id": ONE, "attempts": 1, "error": "busy", "payload": story, "body": None}
    harebell.answer = lambda _: {"ok": True, "item": letter}

    shown, whole = cli("dlq", "show", ONE), cli("dlq", "show", ONE, "-o", "json")

    table = shown.stdout.split("\nattempts\n")[1].splitlines()
    assert table[0].split()[:2] == ["replay_number", "number"]
    assert table[1].split() == ["-", "1", "-", "-", "-", "failed", "503", "-", "busy"]
    assert '"name": "report"' in shown.stdout
    assert json.loads(whole.stdout) == letter
    assert harebell.asked[0].verb == "dlq.get"


@pytest.mark.requirement("S111")
def test_the_body_of_a_message_is_shown_as_text(
    cli: "CommandLine", harebell: "FakeHarebell"
) -> None:
    story = {"queue": "harebell.intake", "routing_key": "acme.schedule.put", "size": 9}
    letter = {"id": ONE, "attempts": 0, "payload": story, "body": "eyJhIjog/30="}
    harebell.answer = lambda _: {"ok": True, "item": letter}

    shown = cli("dlq", "show", ONE).stdout

    assert '{"a": \\xff}' in shown
    assert "acme.schedule.put" in shown
