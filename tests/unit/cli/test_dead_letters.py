"""`harebell dlq list`, `get`, `discard` and `edit`, and `dlq replay` by id."""

import json
from typing import Any

import pytest
from tests.unit.cli.conftest import CommandLine, FakeBroker, Request
from tests.unit.cli.rows import ID, OTHER_ID, attempt_row, dead_letter_row


@pytest.mark.parametrize(
    ("results", "code"),
    [
        ({ID: "replayed", OTHER_ID: "replayed"}, 0),
        ({ID: "replayed", OTHER_ID: "not_replayable"}, 4),
        ({ID: "replayed", OTHER_ID: "not_found"}, 4),
        ({ID: "not_replayable", OTHER_ID: "not_found"}, 1),
        ({ID: "not_found", OTHER_ID: "not_found"}, 3),
    ],
)
def test_dlq_replay_exits_with_the_code_of_its_results(
    cli: CommandLine, broker: FakeBroker, results: dict[str, str], code: int
) -> None:
    broker.respond = lambda _: {"ok": True, "results": results}

    result = cli("dlq", "replay", ID, OTHER_ID, "--note", "fixed", "-o", "json")

    assert result.exit_code == code
    assert {row["id"]: row["status"] for row in json.loads(result.stdout)} == results
    assert broker.requests[0].body == {"ids": [ID, OTHER_ID], "note": "fixed"}


@pytest.mark.parametrize(
    "arguments",
    [[], [ID, "--all"], [ID, "--key", "hello"], ["no-uuid"], ["--all", "--rate", "5/x"]],
)
def test_dlq_replay_sends_nothing_when_the_selection_or_the_rate_is_invalid(
    cli: CommandLine, broker: FakeBroker, arguments: list[str]
) -> None:
    assert cli("dlq", "replay", *arguments).exit_code == 2
    assert broker.requests == []


@pytest.mark.requirement("S111")
def test_dlq_list_sends_every_filter(cli: CommandLine, broker: FakeBroker) -> None:
    filters = ("--group", ID, "--tag", "reports", "--error", "http_503", "--until", "2h")

    cli("dlq", "list", *filters, "--since", "1d", "--replayed", "--state", "all")

    assert broker.requests[0].body == {
        "limit": 50,
        "state": "all",
        "group": ID,
        "tag": "reports",
        "error": "http_503",
        "until": "2026-11-20T12:00:00Z",
        "since": "2026-11-19T14:00:00Z",
        "replayed": True,
    }


@pytest.mark.parametrize("verb", ["discard", "drop"])
def test_dlq_discard_prints_the_result_of_each_dead_letter(
    cli: CommandLine, broker: FakeBroker, verb: str
) -> None:
    broker.respond = lambda _: {"ok": True, "results": {ID: "discarded"}}

    result = cli("dlq", verb, ID)

    assert result.exit_code == 0
    assert result.stdout.split() == ["id", "status", ID, "discarded"]
    assert broker.requests[0].verb == "dlq.discard"


@pytest.mark.requirement("S111")
@pytest.mark.parametrize("verb", ["get", "show"])
def test_dlq_get_prints_the_attempts_as_a_table_and_the_payload_as_json(
    cli: CommandLine, broker: FakeBroker, verb: str
) -> None:
    attempt = attempt_row(http_status=503, error="busy", finished_at=None)
    payload = {"target": {"task": {"name": "report"}}, "attempts": [attempt]}
    row = dead_letter_row(error="busy", payload=payload)
    broker.respond = lambda _: {"ok": True, **row}

    table, whole = cli("dlq", verb, ID), cli("dlq", verb, ID, "-o", "json")

    header, cells = table.stdout.split("\nattempts\n")[1].splitlines()
    assert header.split()[:3] == ["replay", "number", "number"]
    assert cells.split() == ["0", "1", "-", "-", "-", "failed", "503", "-", "busy"]
    assert '"name": "report"' in table.stdout
    assert row.items() <= json.loads(whole.stdout).items()
    assert broker.requests[0].verb == "dlq.get"


@pytest.mark.requirement("S111")
def test_dlq_get_prints_the_body_of_a_message_as_text(cli: CommandLine, broker: FakeBroker) -> None:
    payload = {"queue": "harebell.intake", "routing_key": "acme.schedule.put", "size": 9}
    row = dead_letter_row(kind="message", payload=payload, body="eyJhIjog/30=")
    broker.respond = lambda _: {"ok": True, **row}

    output = cli("dlq", "get", ID).stdout

    assert '{"a": \\xff}' in output
    assert "acme.schedule.put" in output


@pytest.mark.requirement("S112")
def test_dlq_edit_sends_the_whole_target_with_the_assignments(
    cli: CommandLine, broker: FakeBroker
) -> None:
    target = {"http": {"url": "https://acme.example/", "json": {"n": 1}}}

    def respond(request: Request) -> dict[str, Any]:
        if request.verb == "dlq.edit":
            return {"ok": True, "results": {OTHER_ID: "edited"}}
        return {"ok": True, **dead_letter_row(payload={"target": target})}

    broker.respond = respond

    result = cli("dlq", "edit", ID, "--set", "http.json.n=2", "--note", "one more")

    assert (result.exit_code, result.stdout.split()[2:]) == (0, [OTHER_ID, "edited"])
    http = broker.requests[-1].body["target"]["http"]
    assert (http["url"], http["json"]) == ("https://acme.example/", {"n": 2})
