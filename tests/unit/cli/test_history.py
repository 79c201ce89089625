"""Versions: listed, compared, gone back to."""

import json
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.unit.cli.conftest import Asked, CommandLine, FakeHarebell

ID = "6f0a7c0e-3d2b-5b53-9c1e-4d7a0f2b8e11"
TASK = {"task": {"name": "acme.report"}}
STORED = {"ok": True, "id": ID, "version": 3, "status": "updated", "state": "active"}


def version(number: int, cron: str) -> dict[str, Any]:
    definition = {"key": "daily", "when": {"cron": cron}, "target": TASK}
    fate = {"in_force": number == 2, "status": "active", "actor": "ann"}
    return {"version": number, "definition": definition, **fate}


@pytest.fixture(autouse=True)
def two_versions(harebell: "FakeHarebell") -> None:
    versions = [version(2, "0 10 * * *"), version(1, "0 9 * * *")]

    def answer(asked: "Asked") -> Any:
        if asked.verb == "schedule.versions":
            return {"ok": True, "item": {"key": "daily", "versions": versions}}
        return STORED

    harebell.answer = answer


def test_versions_are_listed_newest_first(cli: "CommandLine") -> None:
    result = cli("schedule", "history", "daily", "-o", "json")

    assert [each["version"] for each in json.loads(result.stdout)] == [2, 1]


def test_versions_are_compared_field_by_field(cli: "CommandLine") -> None:
    result = cli("schedule", "diff", "daily", "1", "2", "-o", "json")

    [found] = json.loads(result.stdout)
    assert (found["field"], found["before"], found["after"]) == (
        "when.cron",
        "0 9 * * *",
        "0 10 * * *",
    )
    assert cli("schedule", "diff", "daily", "1", "1").exit_code == 3
    assert cli("schedule", "diff", "daily", "1", "7").exit_code == 3


def test_going_back_is_a_new_version_upon_the_one_in_force(
    cli: "CommandLine", harebell: "FakeHarebell"
) -> None:
    result = cli("schedule", "rollback", "daily", "1")

    assert result.exit_code == 0
    body = harebell.asked[-1].body
    assert (harebell.asked[-1].verb, body["expected_version"]) == ("schedule.put", 2)
    assert body["when"] == {"cron": "0 9 * * *"}
    assert body["note"] == "as version 1 was"
