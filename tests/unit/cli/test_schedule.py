"""`harebell schedule` for one schedule, the output of responses, and errors."""

import json
from pathlib import Path
from typing import Any

import pytest
from tests.unit.cli.conftest import CommandLine, FakeBroker
from tests.unit.cli.rows import ID, RUN_ID, TASK, schedule_row

SCHEDULE = {"key": "hello", "when": {"now": True}, "target": TASK}
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
REASON = "The minute must be at most 59, not 75."
REJECTED: dict[str, Any] = {
    "ok": False,
    "error": {"code": "invalid_cron", "field": "[1].when.cron", "reason": REASON},
}
ERROR_LINE = f"harebell: [1].when.cron: {REASON} (invalid_cron)\n"


def test_schedule_put_sends_the_file_unchanged(
    cli: CommandLine, broker: FakeBroker, tmp_path: Path
) -> None:
    broker.respond = lambda _: STORED
    file = tmp_path / "hello.json"
    file.write_text(json.dumps(SCHEDULE))

    result = cli("schedule", "put", str(file))

    assert result.exit_code == 0
    assert "2026-11-20T14:00:00Z" in result.stdout
    [request] = broker.requests
    assert (request.tenant, request.verb) == ("default", "schedule.put")
    assert request.body == SCHEDULE


def test_schedule_put_reads_standard_input_and_prints_json(
    cli: CommandLine, broker: FakeBroker
) -> None:
    broker.respond = lambda _: STORED

    result = cli("schedule", "put", "-", "-o", "json", stdin=json.dumps(SCHEDULE))

    assert json.loads(result.stdout)["id"] == ID
    assert result.stderr == ""


def test_schedule_put_is_partial_when_an_item_is_rejected(
    cli: CommandLine, broker: FakeBroker
) -> None:
    broker.respond = lambda _: [STORED, REJECTED]

    result = cli("schedule", "put", "-", "-o", "json", stdin=json.dumps([SCHEDULE, SCHEDULE]))

    assert result.exit_code == 4
    assert [response["ok"] for response in json.loads(result.stdout)] == [True, False]
    assert result.stderr == ERROR_LINE


def test_schedule_put_fails_when_every_item_is_rejected(
    cli: CommandLine, broker: FakeBroker
) -> None:
    broker.respond = lambda _: [REJECTED]

    assert cli("schedule", "put", "-", stdin=json.dumps([SCHEDULE])).exit_code == 1


def test_error_is_one_line_with_field_reason_and_code(cli: CommandLine, broker: FakeBroker) -> None:
    broker.respond = lambda _: REJECTED

    result = cli("schedule", "put", "-", stdin=json.dumps(SCHEDULE))

    assert result.exit_code == 1
    assert result.stdout == ""
    assert result.stderr == ERROR_LINE


@pytest.mark.parametrize("text", ["{", "3", "[]", "[3]", '{"a": 99999999999999999999}'])
def test_schedule_put_sends_nothing_when_the_file_is_not_json_objects(
    cli: CommandLine, broker: FakeBroker, text: str
) -> None:
    result = cli("schedule", "put", "-", stdin=text)

    assert result.exit_code == 2
    assert result.stderr.startswith("harebell: ")
    assert broker.requests == []


def test_missing_file_is_wrong_usage(cli: CommandLine) -> None:
    result = cli("schedule", "put", "missing.json")

    assert result.exit_code == 2
    assert "missing.json" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "ref"),
    [
        (["daily"], {"key": "daily"}),
        ([ID], {"id": ID}),
        (["--id", ID], {"id": ID}),
        (["--key", ID], {"key": ID}),
    ],
)
@pytest.mark.parametrize("verb", ["pause", "resume", "cancel", "trigger"])
def test_command_sends_the_reference_of_its_schedule(
    cli: CommandLine, broker: FakeBroker, verb: str, arguments: list[str], ref: dict[str, str]
) -> None:
    broker.respond = lambda _: STORED | {"status": verb}

    result = cli("schedule", verb, *arguments, "--note", "migration")

    assert result.exit_code == 0
    assert broker.requests[0].verb == f"schedule.{verb}"
    assert broker.requests[0].body == ref | {"note": "migration"}


@pytest.mark.parametrize("arguments", [[], ["daily", "--id", ID], ["--key", "a", "--id", ID]])
def test_command_sends_nothing_unless_it_names_exactly_one_schedule(
    cli: CommandLine, broker: FakeBroker, arguments: list[str]
) -> None:
    assert cli("schedule", "pause", *arguments).exit_code == 2
    assert broker.requests == []


def test_schedule_cancel_names_the_runs_that_an_executor_had_claimed(
    cli: CommandLine, broker: FakeBroker
) -> None:
    broker.respond = lambda _: STORED | {"in_flight": [RUN_ID]}

    result = cli("schedule", "cancel", "hello")

    assert result.exit_code == 0
    assert result.stderr == f"harebell: An executor had already claimed the run {RUN_ID}.\n"


def test_schedule_list_exits_with_no_match_when_it_is_empty(
    cli: CommandLine, broker: FakeBroker
) -> None:
    result = cli("schedule", "list", "--tag", "reports", "--limit", "7", "-o", "json")

    assert (result.exit_code, json.loads(result.stdout)) == (3, [])
    assert broker.requests[0].exchange == "harebell.queries"
    assert broker.requests[0].body == {"tag": "reports", "limit": 7}


def test_schedule_get_exits_with_no_match_when_the_schedule_does_not_exist(
    cli: CommandLine, broker: FakeBroker
) -> None:
    reason = "No schedule has the key 'x'."
    broker.respond = lambda _: {
        "ok": False,
        "error": {"code": "not_found", "field": "key", "reason": reason},
    }

    result = cli("schedule", "get", "x")

    assert result.exit_code == 3
    assert result.stderr == f"harebell: key: {reason} (not_found)\n"


def test_schedule_get_prints_the_fields_of_the_view(cli: CommandLine, broker: FakeBroker) -> None:
    row = schedule_row(definition={"when": {"cron": "0 9 * * *"}})
    broker.respond = lambda _: {"ok": True, **row}

    result = cli("schedule", "get", "daily", "-o", "json")

    assert result.exit_code == 0
    assert row.items() <= json.loads(result.stdout).items()


def test_table_escapes_control_characters(cli: CommandLine, broker: FakeBroker) -> None:
    broker.respond = lambda _: {"ok": True, "items": [schedule_row(key="a\x1b[2Jb[red]")]}

    result = cli("schedule", "list")

    assert r"a\x1b[2Jb[red]" in result.stdout
    assert "\x1b" not in result.stdout


@pytest.mark.requirement("P13")
def test_table_escapes_line_ends_and_marks_of_direction(
    cli: CommandLine, broker: FakeBroker
) -> None:
    key = "x\nFAKE-ROW  succeeded\x9b\u202e"
    broker.respond = lambda _: {"ok": True, "items": [schedule_row(key=key)]}

    _, line = cli("schedule", "list").stdout.splitlines()

    assert r"x\nFAKE-ROW  succeeded\x9b\u202e" in line


@pytest.mark.requirement("S06", "S40")
def test_schedule_list_shows_the_result_and_the_last_run(
    cli: CommandLine, broker: FakeBroker
) -> None:
    last_run = {"run_id": RUN_ID, "scheduled_for": "2026-11-20T14:00:00Z", "state": "dead"}
    status = {"result": "dead", "executions": 3, "failures": 1, "last_run": last_run}
    row = schedule_row(state="completed", **status)
    broker.respond = lambda _: {"ok": True, "items": [row]}

    header, line = cli("schedule", "list").stdout.splitlines()
    (printed,) = json.loads(cli("schedule", "list", "-o", "json").stdout)

    assert "last run scheduled for" in header
    assert line.split()[2:9] == [
        "completed",
        "dead",
        "-",
        "2026-11-20T14:00:00Z",
        "dead",
        "3",
        "1",
    ]
    assert printed["last_run"].items() >= last_run.items()


def test_table_never_wraps_a_row(cli: CommandLine, broker: FakeBroker) -> None:
    key = "k" * 250
    broker.respond = lambda _: {"ok": True, "items": [schedule_row(key=key)]}

    header, row = cli("schedule", "list").stdout.splitlines()

    assert header.split()[:3] == ["key", "id", "state"]
    assert row.split()[:3] == [key, ID, "active"]


def test_schedule_patch_sends_only_the_assigned_fields(
    cli: CommandLine, broker: FakeBroker
) -> None:
    broker.respond = lambda _: STORED
    assignments = ("--set", "retry.max_attempts=3", "--set", "owner=null", "--set", "name=Daily x")

    result = cli(
        "schedule",
        "patch",
        "daily",
        *assignments,
        "--effective-at",
        "1h",
        "--expected-version",
        "1",
    )

    assert result.exit_code == 0, result.stderr
    assert broker.requests[0].body == {
        "key": "daily",
        "set": {"retry": {"max_attempts": 3}, "owner": None, "name": "Daily x"},
        "effective_at": "2026-11-20T15:00:00Z",
        "expected_version": 1,
    }


@pytest.mark.parametrize("arguments", [[], ["--set", "owner"], ["--set", ".=1"]])
def test_schedule_patch_is_wrong_usage_when_it_changes_nothing(
    cli: CommandLine, arguments: list[str]
) -> None:
    assert cli("schedule", "patch", "daily", *arguments).exit_code == 2


def test_schedule_patch_reads_the_changes_from_a_file(cli: CommandLine, broker: FakeBroker) -> None:
    broker.respond = lambda _: STORED
    changes = {"when": {"cron": "0 10 * * *"}}

    cli("schedule", "patch", "daily", "-f", "-", stdin=json.dumps(changes))

    assert broker.requests[0].body == {"key": "daily", "set": changes}


def test_schedule_skip_sends_the_scheduled_time(cli: CommandLine, broker: FakeBroker) -> None:
    broker.respond = lambda _: STORED | {"status": "skipped"}

    result = cli("schedule", "skip", "daily", "--at", "2026-12-25T09:00:00+01:00")

    assert result.exit_code == 0
    assert broker.requests[0].body == {"key": "daily", "at": "2026-12-25T08:00:00Z"}


def test_schedule_backfill_dry_run_prints_the_runs(cli: CommandLine, broker: FakeBroker) -> None:
    broker.respond = lambda _: STORED | {"status": "previewed", "runs": [RUN_ID]}

    result = cli("schedule", "backfill", "daily", "--from", "3h", "--to", "1h", "--dry-run")

    assert broker.requests[0].body == {
        "key": "daily",
        "from": "2026-11-20T11:00:00Z",
        "to": "2026-11-20T13:00:00Z",
        "max": 100,
        "dry_run": True,
    }
    assert result.exit_code == 0
    assert RUN_ID in result.stdout


ENDED: dict[str, Any] = {
    "ok": False,
    "error": {
        "code": "schedule_ended",
        "field": "key",
        "reason": "The schedule is completed. Set `revive` to true (`--revive`).",
    },
}


@pytest.mark.parametrize("is_array", [False, True])
def test_schedule_put_fails_when_the_schedule_has_ended(
    cli: CommandLine, broker: FakeBroker, *, is_array: bool
) -> None:
    broker.respond = lambda _: [ENDED] if is_array else ENDED

    result = cli("schedule", "put", "-", stdin=json.dumps([SCHEDULE] if is_array else SCHEDULE))

    assert result.exit_code == 1
    assert "--revive" in result.stderr
    assert "(schedule_ended)" in result.stderr


@pytest.mark.parametrize("is_array", [False, True])
def test_schedule_put_with_revive_sends_the_field(
    cli: CommandLine, broker: FakeBroker, *, is_array: bool
) -> None:
    broker.respond = lambda _: [STORED] if is_array else STORED

    body = [SCHEDULE] if is_array else SCHEDULE
    result = cli("schedule", "put", "-", "--revive", stdin=json.dumps(body))

    assert result.exit_code == 0
    [request] = broker.requests
    expected = {**SCHEDULE, "revive": True}
    assert request.body == ([expected] if is_array else expected)


def test_schedule_delete_sends_the_reference_and_the_note(
    cli: CommandLine, broker: FakeBroker
) -> None:
    broker.respond = lambda _: {**STORED, "status": "deleted", "state": "deleted"}

    result = cli("schedule", "delete", "hello", "--note", "tidy")

    assert result.exit_code == 0
    [request] = broker.requests
    assert (request.verb, request.body) == ("schedule.delete", {"key": "hello", "note": "tidy"})


def test_schedule_put_prints_each_superseded_version(cli: CommandLine, broker: FakeBroker) -> None:
    superseded = [
        {"version": number, "effective_at": f"2026-11-2{number}T14:00:00Z"} for number in (2, 3)
    ]
    broker.respond = lambda _: {**STORED, "supersedes": superseded}

    result = cli("schedule", "put", "-", stdin=json.dumps(SCHEDULE))

    assert result.stderr.splitlines() == [
        "harebell: The pending version 2 of 2026-11-22T14:00:00Z is superseded.",
        "harebell: The pending version 3 of 2026-11-23T14:00:00Z is superseded.",
    ]
