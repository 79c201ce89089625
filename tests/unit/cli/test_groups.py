"""`harebell dlq groups`."""

from typing import Any

import pytest
from tests.unit.cli.conftest import CommandLine, FakeBroker, Request
from tests.unit.cli.rows import ID, OTHER_ID, group_row


@pytest.mark.requirement("ASK-25")
def test_dlq_groups_list_prints_each_group(cli: CommandLine, broker: FakeBroker) -> None:
    row = group_row()
    broker.respond = lambda _: {"ok": True, "items": [row]}

    result = cli("dlq", "groups", "list", "--state", "all")

    shown = ("id", "open", "trend", "message")
    assert all(str(row[name]) in result.stdout for name in shown)
    assert broker.requests[0].body == {"state": "all", "limit": 50}


@pytest.mark.parametrize(
    ("command", "sentence"),
    [
        (["dlq", "groups", "list"], "No failure group matches."),
        (["dlq", "list"], "No dead letter matches."),
        (["dlq", "replays", "list"], "No replay job exists."),
        (["schedule", "list"], "No schedule matches."),
        (["run", "list"], "No run matches."),
    ],
)
def test_empty_list_is_stated_in_words_and_exits_with_no_match(
    cli: CommandLine, command: list[str], sentence: str
) -> None:
    table, as_json = cli(*command), cli(*command, "-o", "json")

    assert (table.exit_code, table.stdout, table.stderr) == (3, "", f"harebell: {sentence}\n")
    assert (as_json.exit_code, as_json.stdout, as_json.stderr) == (3, "[]\n", "")


@pytest.mark.requirement("ASK-25")
@pytest.mark.parametrize(
    ("arguments", "sent", "status"),
    [
        (["note", ID, "wrong URL"], ("dlq.group.note", {"note": "wrong URL"}), "noted"),
        (
            ["mute", ID, "--until", "2h", "--note", "tomorrow"],
            ("dlq.group.mute", {"note": "tomorrow", "until": "2026-11-20T16:00:00Z"}),
            "muted",
        ),
        (["archive", ID], ("dlq.group.archive", {}), "archived"),
        (["reopen", ID], ("dlq.group.reopen", {}), "open"),
    ],
)
def test_dlq_groups_command_sends_its_fields_and_prints_the_result(
    cli: CommandLine,
    broker: FakeBroker,
    arguments: list[str],
    sent: tuple[str, dict[str, Any]],
    status: str,
) -> None:
    broker.respond = lambda _: {"ok": True, "results": {ID: status}}

    result = cli("dlq", "groups", *arguments)

    assert (result.exit_code, result.stdout.split()[2:]) == (0, [ID, status])
    verb, fields = sent
    [request] = broker.requests
    assert (request.verb, request.body) == (verb, {"groups": [ID], **fields})


def test_dlq_groups_archive_is_partial_when_a_group_does_not_exist(
    cli: CommandLine, broker: FakeBroker
) -> None:
    def respond(request: Request) -> dict[str, Any]:
        first, second = request.body["groups"]
        return {"ok": True, "results": {first: "archived", second: "not_found"}}

    broker.respond = respond

    assert cli("dlq", "groups", "archive", ID, OTHER_ID).exit_code == 4
