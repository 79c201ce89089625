"""`harebell schedule history`, `diff` and `rollback`."""

import json
from typing import Any

import pytest
from tests.unit.cli.conftest import CommandLine, FakeBroker, Request
from tests.unit.cli.rows import ID, TASK, version_row

STORED = {"ok": True, "id": ID, "version": 3, "status": "updated", "state": "active"}


def version(number: int, cron: str) -> dict[str, Any]:
    definition = {"key": "daily", "when": {"cron": cron}, "target": TASK}
    return version_row(number, definition=definition, in_force=number == 2)


@pytest.fixture(autouse=True)
def two_versions(broker: FakeBroker) -> None:
    versions = [version(2, "0 10 * * *"), version(1, "0 9 * * *")]

    def respond(request: Request) -> Any:
        if request.verb == "schedule.versions":
            return {"ok": True, "id": ID, "key": "daily", "versions": versions}
        return STORED

    broker.respond = respond


def test_schedule_history_prints_the_newest_version_first(cli: CommandLine) -> None:
    result = cli("schedule", "history", "daily", "-o", "json")

    assert [each["version"] for each in json.loads(result.stdout)] == [2, 1]


def test_schedule_diff_prints_each_different_field(cli: CommandLine) -> None:
    result = cli("schedule", "diff", "daily", "1", "2", "-o", "json")

    [difference] = json.loads(result.stdout)
    assert (difference["field"], difference["before"], difference["after"]) == (
        "when.cron",
        "0 9 * * *",
        "0 10 * * *",
    )


@pytest.mark.parametrize("version", ["1", "7"])
def test_schedule_diff_exits_with_no_match_when_versions_are_equal_or_missing(
    cli: CommandLine, version: str
) -> None:
    assert cli("schedule", "diff", "daily", "1", version).exit_code == 3


def test_schedule_rollback_puts_the_old_definition_after_the_version_in_force(
    cli: CommandLine, broker: FakeBroker
) -> None:
    result = cli("schedule", "rollback", "daily", "1")

    assert result.exit_code == 0
    body = broker.requests[-1].body
    assert (broker.requests[-1].verb, body["expected_version"]) == ("schedule.put", 2)
    assert body["when"] == {"cron": "0 9 * * *"}
    assert body["note"] == "rollback to version 1"


LITERALS = {"http": {"url": "https://a.example/", "headers": {"Cookie": "***"}}}


def respond_with(broker: FakeBroker, newer: dict[str, Any], older: dict[str, Any]) -> None:
    rows = [
        version_row(2, definition={"key": "daily", **newer}, in_force=True),
        version_row(1, definition={"key": "daily", **older}, in_force=False),
    ]
    listed = {"ok": True, "id": ID, "key": "daily", "versions": rows}
    broker.respond = lambda request: listed if request.verb == "schedule.versions" else STORED


@pytest.mark.requirement("P7")
def test_schedule_rollback_keeps_the_secrets_that_the_views_hide(
    cli: CommandLine, broker: FakeBroker
) -> None:
    newer = {"when": {"every": "1h"}, "target": LITERALS, "name": "new", "tags": ["a"]}
    respond_with(broker, newer, {"when": {"cron": "0 9 * * *"}, "target": LITERALS, "tags": ["b"]})

    result = cli("schedule", "rollback", "daily", "1")

    assert result.exit_code == 0
    body = broker.requests[-1].body
    assert (broker.requests[-1].verb, body["expected_version"]) == ("schedule.patch", 2)
    when = {"every": None, "cron": "0 9 * * *"}
    assert body["set"] == {"name": None, "when": when, "tags": ["b"]}
    assert "stay" in result.stderr


@pytest.mark.requirement("P7")
@pytest.mark.parametrize(
    "newer",
    [
        {"http": {"url": "https://a.example/"}},
        {"http": {"url": "https://a.example/", "headers": {"Cookie": {"secret": "c"}}}},
    ],
)
def test_schedule_rollback_rejects_a_secret_that_it_cannot_restore(
    cli: CommandLine, broker: FakeBroker, newer: dict[str, Any]
) -> None:
    when = {"every": "1h"}
    respond_with(broker, {"when": when, "target": newer}, {"when": when, "target": LITERALS})

    result = cli("schedule", "rollback", "daily", "1")

    assert result.exit_code == 2
    assert "target.http.headers.Cookie" in result.stderr
    assert broker.requests[-1].verb == "schedule.versions"
