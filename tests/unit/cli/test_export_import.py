"""TODO: describe this module."""

import json
from typing import TYPE_CHECKING, Any

import pytest

from harebell.cli.dlq.export_import import MAX_PORTION, portions

if TYPE_CHECKING:
    from tests.unit.cli.conftest import Asked, CommandLine, FakeHarebell

ONE = "6f0a7c0e-3d2b-5b53-9c1e-4d7a0f2b8e11"
TWO = "6f0a7c0e-3d2b-5b53-9c1e-4d7a0f2b8e12"
STORY = {"target": {"http": {"url": "https://acme.example/", "json": {"n": 1}}}}


def letter(id_: str) -> dict[str, Any]:
    return {"id": id_, "kind": "run", "payload": STORY, "body": None, "state": "open"}


def desk(asked: "Asked") -> dict[str, Any]:
    match asked.verb:
        case "dlq.list":
            return {"ok": True, "items": [letter(ONE), letter(TWO)]}
        case "dlq.get":
            return {"ok": True, "item": letter(asked.body["id"])}
        case "dlq.edit":
            return {"ok": True, "results": {TWO: "edited"}}
        case _:
            return {"ok": True, "results": dict.fromkeys([ONE, TWO], "imported")}


def test_what_is_exported_can_be_imported(cli: "CommandLine", harebell: "FakeHarebell") -> None:
    harebell.answer = desk

    exported = cli("dlq", "export", "--tag", "reports")
    imported = cli("dlq", "import", "-", stdin=exported.stdout)

    lines = [json.loads(line) for line in exported.stdout.splitlines()]
    assert (exported.exit_code, lines) == (0, [letter(ONE), letter(TWO)])
    assert (imported.exit_code, imported.stderr) == (
        0,
        "harebell: 2 imported or present, 0 not\n",
    )
    told = {"kind": "run", "payload": STORY}
    assert harebell.asked[-1].body == {"letters": [told, told]}


@pytest.mark.parametrize("line", ["[]", "no json", '{"kind": "rung", "payload": {}}'])
def test_a_line_that_is_no_letter_is_wrong_usage_or_not_imported(
    cli: "CommandLine", harebell: "FakeHarebell", line: str
) -> None:
    assert cli("dlq", "import", "-", stdin=line).exit_code in {1, 2}
    assert harebell.asked == []


def test_letters_are_sent_as_many_together_as_one_command_holds() -> None:
    small, large = {"payload": "x" * 1_000}, {"payload": "x" * MAX_PORTION}

    sent = [len(portion) for portion in portions([small, small, large, small])]

    assert sent == [2, 1, 1]


@pytest.mark.requirement("ASK-21")
def test_letters_are_told_as_they_come_and_once(
    cli: "CommandLine", harebell: "FakeHarebell"
) -> None:
    looks = iter([[letter(ONE)], [letter(TWO), letter(ONE)], [letter(TWO), letter(ONE)]])
    harebell.answer = lambda _: {"ok": True, "items": next(looks)}

    result = cli("dlq", "watch", "--every", "0.1", "--looks", "3", "-o", "json")

    assert json.loads(result.stdout) == [letter(TWO)]


@pytest.mark.requirement("S112")
def test_an_edit_sends_the_whole_target_with_what_was_set(
    cli: "CommandLine", harebell: "FakeHarebell"
) -> None:
    harebell.answer = desk

    result = cli("dlq", "edit", ONE, "--set", "http.json.n=2", "--note", "one more")

    assert (result.exit_code, result.stdout.split()[2:]) == (0, [TWO, "edited"])
    http = harebell.asked[-1].body["target"]["http"]
    assert (http["url"], http["json"]) == ("https://acme.example/", {"n": 2})
