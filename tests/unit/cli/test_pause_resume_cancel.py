"""`harebell schedule pause`, `resume` and `cancel` as bulk operations."""

from typing import Any

import pytest
from tests.unit.cli.conftest import CommandLine, FakeBroker
from tests.unit.cli.rows import ID

BULK: dict[str, Any] = {
    "ok": True,
    "bulk_operation_id": "pause-20261120",
    "changed": [ID],
    "rejected": {},
    "in_flight": [],
}
REASON = "The schedule is cancelled."


@pytest.mark.requirement("ASK-22")
def test_schedule_pause_with_a_filter_prints_the_id_of_the_bulk_operation(
    cli: CommandLine, broker: FakeBroker
) -> None:
    broker.respond = lambda request: BULK | {"bulk_operation_id": request.body["request_id"]}

    result = cli("schedule", "pause", "--tag", "reports", "--owner", "sales", "--until", "2h")

    body = broker.requests[0].body
    assert body["select"] == {"tag": "reports", "owner": "sales"}
    assert body["until"] == "2026-11-20T16:00:00Z"
    assert body["request_id"].startswith("pause-20261120T140000Z-")
    assert result.exit_code == 0
    assert body["request_id"] in result.stdout


@pytest.mark.requirement("ASK-22")
def test_schedule_resume_sends_the_id_of_the_bulk_operation(
    cli: CommandLine, broker: FakeBroker
) -> None:
    broker.respond = lambda _: BULK

    arguments = ("--bulk-operation", "pause-1", "--request-id", "resume-1")
    result = cli("schedule", "resume", *arguments)

    assert result.exit_code == 0
    assert broker.requests[0].body == {"bulk_operation_id": "pause-1", "request_id": "resume-1"}


@pytest.mark.parametrize(
    ("changed", "rejected", "exit_code"),
    [([], {}, 3), ([ID], {"other": REASON}, 4), ([], {"other": REASON}, 1)],
)
def test_bulk_operation_exits_with_the_code_of_its_results(
    cli: CommandLine,
    broker: FakeBroker,
    changed: list[str],
    rejected: dict[str, str],
    exit_code: int,
) -> None:
    broker.respond = lambda _: BULK | {"changed": changed, "rejected": rejected}

    result = cli("schedule", "cancel", "--state", "paused")

    assert result.exit_code == exit_code
    assert (f"harebell: other: {REASON}" in result.stderr) == bool(rejected)


@pytest.mark.parametrize(
    "arguments",
    [
        ["pause", "daily", "--tag", "reports"],
        ["resume", "--bulk-operation", "r", "--tag", "reports"],
        ["cancel"],
    ],
)
def test_command_sends_nothing_unless_it_selects_one_schedule_or_a_filter(
    cli: CommandLine, broker: FakeBroker, arguments: list[str]
) -> None:
    assert cli("schedule", *arguments).exit_code == 2
    assert broker.requests == []


@pytest.mark.parametrize(
    ("verb", "arguments", "fields"),
    [
        ("pause", ["--until", "1h"], {"until": "2026-11-20T15:00:00Z"}),
        ("resume", [], {}),
        ("cancel", [], {}),
    ],
)
def test_command_for_one_schedule_sends_its_reference(
    cli: CommandLine, broker: FakeBroker, verb: str, arguments: list[str], fields: dict[str, str]
) -> None:
    stored = {"ok": True, "id": ID, "version": 1, "status": "paused", "state": "paused"}
    broker.respond = lambda _: stored

    result = cli("schedule", verb, "daily", "--request-id", "r-1", *arguments)

    assert result.exit_code == 0
    assert broker.requests[0].body == {"key": "daily", "request_id": "r-1", **fields}
