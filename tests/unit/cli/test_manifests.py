"""`harebell apply` and `harebell export`."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.unit.cli.conftest import CommandLine, FakeBroker, Request
from tests.unit.cli.rows import ID, TASK, schedule_row

from harebell.cli.manifests import files
from harebell.contract.schedule import Definition

HOURLY = {"key": "hourly", "when": {"cron": "0 * * * *"}, "target": TASK}
DAILY: dict[str, Any] = {
    "key": "daily",
    "when": {"cron": "0 9 * * *", "start": "2026-01-01"},
    "target": TASK,
}
RESPONSE = {"ok": True, "id": ID, "version": 1, "status": "created", "state": "active"}


class StoredSchedules:
    """The responses of a Harebell with these schedules."""

    def __init__(self, *schedules: dict[str, Any]) -> None:
        self._schedules = {each["key"]: each for each in schedules}

    def __call__(self, request: Request) -> Any:
        match request.verb:
            case "schedule.get":
                schedule = self._schedules.get(request.body["key"])
                if schedule is not None:
                    return {"ok": True, **schedule}
                error = {"code": "not_found", "reason": "The schedule does not exist."}
                return {"ok": False, "error": error}
            case "schedule.list":
                owner = request.body.get("owner")
                rows = [row for row in self._schedules.values() if owner in (None, row["owner"])]
                return {"ok": True, "items": rows}
            case _:
                return RESPONSE


def stored(body: dict[str, Any], owner: str = "sales", **fields: Any) -> dict[str, Any]:
    model = Definition.model_validate({**body, "owner": owner})
    definition = model.model_dump(mode="json", by_alias=True, exclude_none=True)
    return schedule_row(key=body["key"], owner=owner, version=4, definition=definition, **fields)


def commands_of(broker: FakeBroker) -> list[tuple[str, str, Any]]:
    return [
        (request.verb, request.body["key"], request.body.get("expected_version"))
        for request in broker.requests
        if request.exchange == "harebell.commands"
    ]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "hourly.json").write_text(json.dumps([HOURLY]))
    (tmp_path / "daily.yaml").write_text(yaml.safe_dump(DAILY))
    (tmp_path / "notes.txt").write_text("no schedule")
    return tmp_path


@pytest.mark.requirement("ASK-15")
def test_apply_creates_missing_schedules_and_updates_different_schedules(
    cli: CommandLine, broker: FakeBroker, folder: Path
) -> None:
    broker.respond = StoredSchedules(stored({**DAILY, "priority": 9}))

    result = cli("apply", "-f", str(folder), "--owner", "sales", "-o", "json")

    assert result.exit_code == 0, result.stderr
    assert sorted(commands_of(broker)) == [
        ("schedule.put", "daily", 4),
        ("schedule.put", "hourly", None),
    ]
    rows = {row["key"]: row for row in json.loads(result.stdout)}
    assert rows["daily"]["changes"][0]["text"] == "priority: 9 -> (none)"


def test_apply_reads_a_mounted_config_map_once(
    cli: CommandLine, broker: FakeBroker, tmp_path: Path
) -> None:
    """Kubernetes links each file to `..data`, and that to a folder of the present version."""
    (tmp_path / "..2026_11_27").mkdir()
    (tmp_path / "..data").symlink_to("..2026_11_27")
    for name in ("hourly.json", "daily.yaml"):
        (tmp_path / name).symlink_to(f"..data/{name}")
    (tmp_path / "..data" / "hourly.json").write_text(json.dumps([HOURLY]))
    (tmp_path / "..data" / "daily.yaml").write_text(yaml.safe_dump(DAILY))
    (tmp_path / "same.yaml").symlink_to("daily.yaml")
    broker.respond = StoredSchedules()

    result = cli("apply", "-f", str(tmp_path), "--owner", "sales")

    assert result.exit_code == 0, result.stderr
    assert sorted(key for _, key, _ in commands_of(broker)) == ["daily", "hourly"]


@pytest.mark.parametrize(
    ("text", "places"),
    [
        ("- {key: a}\n- key: b\n- {key: a}\n", ["b.yaml, line 3", "also in ", "b.yaml, line 1"]),
        ("key: hourly\n", ["'hourly' is also in ", "hourly.json, line 1", "b.yaml, line 1"]),
        ("key: a\nowner: other\n", ["b.yaml, line 2: owner: other"]),
        ("key: a\nwhen: {now: true}\npriorty: 0x1F\n", ["b.yaml, line 3: priorty: 0x1F"]),
        ("key: a\n\npriority: 0x1F\n", ["not 31. (", "b.yaml, line 3: priority: 0x1F"]),
        ("key: a\ntimeout: 010\n", ["b.yaml, line 2: timeout: 010"]),
        ("when: {now: true}\n", ["must have a key", "b.yaml, line 1"]),
    ],
)
def test_apply_names_the_file_the_line_and_the_text_of_a_fault(
    cli: CommandLine, broker: FakeBroker, folder: Path, text: str, places: list[str]
) -> None:
    target = "target: {task: {name: a}}\n" if text.startswith("key") else ""
    (folder / "b.yaml").write_text(text + target)
    broker.respond = StoredSchedules()

    result = cli("apply", "-f", str(folder), "--owner", "sales")

    assert result.exit_code == 2
    assert [each for each in places if each not in result.stderr] == [], result.stderr
    assert commands_of(broker) == []


def test_apply_shows_the_line_of_a_field_that_the_service_rejects(
    cli: CommandLine, broker: FakeBroker, tmp_path: Path
) -> None:
    file = tmp_path / "a.yaml"
    file.write_text(
        "key: a\nwhen:\n  cron: 0 0 31 2 *\ntarget:\n  http:\n    url: https://acme.example/\n"
        "    headers:\n      Authorization: s3cret\n"
    )
    schedules = StoredSchedules()

    def stderr_after(field: str) -> str:
        error = {"code": "invalid", "reason": "The value is bad.", "field": field}

        def respond(request: Request) -> Any:
            is_put = request.verb == "schedule.put"
            return {"ok": False, "error": error} if is_put else schedules(request)

        broker.respond = respond
        return cli("apply", "-f", str(file), "--owner", "sales").stderr

    found = [stderr_after("when.cron"), stderr_after("target.http.headers.Authorization")]

    assert f"({file}, line 3: cron: 0 0 31 2 *)" in found[0]
    assert f"({file}, line 8)" in found[1]
    assert "s3cret" not in found[1]


@pytest.mark.requirement("ASK-15")
def test_apply_dry_run_prints_the_differences_and_changes_nothing(
    cli: CommandLine, broker: FakeBroker, folder: Path
) -> None:
    broker.respond = StoredSchedules(stored(DAILY), stored({**HOURLY, "key": "old"}))

    options = ("--owner", "sales", "--prune", "--dry-run", "-o", "json")
    result = cli("apply", "-f", str(folder), *options)

    assert result.exit_code == 0
    actions = {row["key"]: row["action"] for row in json.loads(result.stdout)}
    assert actions == {"daily": "keep", "hourly": "create", "old": "cancel"}
    assert commands_of(broker) == []


@pytest.mark.requirement("ASK-15")
def test_apply_prune_cancels_no_schedule_of_another_owner(
    cli: CommandLine, broker: FakeBroker, folder: Path
) -> None:
    broker.respond = StoredSchedules(
        stored(DAILY),
        stored(HOURLY),
        stored({**HOURLY, "key": "old"}),
        stored({**HOURLY, "key": "ended"}, state="cancelled"),
        stored({**HOURLY, "key": "foreign"}, owner="finance"),
    )

    result = cli("apply", "-f", str(folder), "--owner", "sales", "--prune")

    assert result.exit_code == 0
    assert commands_of(broker) == [("schedule.cancel", "old", None)]


@pytest.mark.requirement("ASK-16")
def test_apply_changes_nothing_when_a_key_belongs_to_another_owner(
    cli: CommandLine, broker: FakeBroker, folder: Path
) -> None:
    broker.respond = StoredSchedules(stored(DAILY, owner="finance"))

    result = cli("apply", "-f", str(folder), "--owner", "sales")

    assert result.exit_code == 2
    assert "'daily' must be 'sales', not 'finance'" in result.stderr
    assert commands_of(broker) == []


@pytest.mark.parametrize(
    "items",
    [
        [{**DAILY, "owner": "finance"}],
        [DAILY, DAILY],
        [{"when": {"now": True}, "target": TASK}],
        [{**DAILY, "colour": "blue"}],
        [{**DAILY, "expected_version": "any"}],
    ],
)
def test_apply_sends_nothing_when_the_files_are_invalid_for_the_owner(
    cli: CommandLine, broker: FakeBroker, items: list[Any]
) -> None:
    result = cli("apply", "-f", "-", "--owner", "sales", stdin=json.dumps(items))

    assert result.exit_code == 2
    assert broker.requests == []


def test_apply_creates_a_cancelled_schedule_after_its_version(
    cli: CommandLine, broker: FakeBroker
) -> None:
    broker.respond = StoredSchedules(stored(DAILY, state="cancelled"))

    cli("apply", "-f", "-", "--owner", "sales", stdin=json.dumps(DAILY))

    assert commands_of(broker) == [("schedule.put", "daily", 4)]


def test_apply_keeps_a_schedule_whose_file_omits_when(cli: CommandLine, broker: FakeBroker) -> None:
    broker.respond = StoredSchedules(stored({**DAILY, "when": {"every": "5m"}}))
    without_when = {name: value for name, value in DAILY.items() if name != "when"}

    cli("apply", "-f", "-", "--owner", "sales", stdin=json.dumps(without_when))

    assert commands_of(broker) == []


@pytest.mark.parametrize("output_format", ["table", "json"])
def test_apply_of_an_export_changes_nothing(
    cli: CommandLine, broker: FakeBroker, output_format: str
) -> None:
    broker.respond = StoredSchedules(
        stored(DAILY),
        stored({**HOURLY, "tags": ["on"]}),
        stored({**HOURLY, "key": "x"}, state="cancelled"),
    )

    exported = cli("export", "--owner", "sales", "-o", output_format)
    result = cli("apply", "-f", "-", "--owner", "sales", "-o", "json", stdin=exported.stdout)

    assert exported.exit_code == 0
    assert [row["action"] for row in json.loads(result.stdout)] == ["keep", "keep"]
    assert commands_of(broker) == []


def test_export_counts_the_schedules_without_a_key(cli: CommandLine, broker: FakeBroker) -> None:
    row = schedule_row(owner="sales")
    del row["key"]
    broker.respond = lambda _: {"ok": True, "items": [row]}

    result = cli("export")

    assert result.exit_code == 3
    assert "1 schedules" in result.stderr


def test_apply_is_wrong_usage_when_the_folder_does_not_exist(cli: CommandLine) -> None:
    result = cli("apply", "-f", "missing", "--owner", "sales")

    assert result.exit_code == 2
    assert "missing" in result.stderr


FEW_VALUES = 1_000  # a lower bound, because the values of a large file take seconds


@pytest.mark.requirement("ASK-15")
@pytest.mark.requirement("P13")
@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("a: &a [x]\nb: [*a, *a]\n", "yaml_alias"),
        ("defaults: &d {x: 1}\nkey: {<<: *d}\n", "yaml_alias"),
        ("- 1\n" * (FEW_VALUES + 1), "too_large"),
    ],
)
def test_apply_rejects_a_file_that_needs_much_memory(
    *,
    cli: CommandLine,
    broker: FakeBroker,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    text: str,
    code: str,
) -> None:
    monkeypatch.setattr(files, "MAX_VALUES", FEW_VALUES)
    file = tmp_path / "large.yaml"
    file.write_text(text)

    result = cli("apply", "-f", str(file), "--owner", "sales")

    assert (result.exit_code, broker.requests) == (2, [])
    assert f"({code})" in result.stderr


@pytest.mark.requirement("P13")
def test_apply_reads_links_within_its_folder_only(
    cli: CommandLine, broker: FakeBroker, folder: Path
) -> None:
    broker.respond = StoredSchedules()
    outside = folder.parent / "outside.json"
    outside.write_text(json.dumps({**HOURLY, "key": "outside"}))
    link = folder / "link.json"
    link.symlink_to(outside)

    refused = cli("apply", "-f", str(folder), "--owner", "sales")
    link.unlink()
    (folder / "data").mkdir()
    outside.rename(folder / "data" / "inside.txt")
    link.symlink_to(Path("data") / "inside.txt")
    applied = cli("apply", "-f", str(folder), "--owner", "sales")

    assert (refused.exit_code, "(outside_folder)" in refused.stderr) == (2, True)
    assert applied.exit_code == 0
    assert ("schedule.put", "outside", None) in [
        (verb, key, None) for verb, key, _ in commands_of(broker)
    ]


def test_apply_revives_a_cancelled_schedule_and_states_it(
    cli: CommandLine, broker: FakeBroker, folder: Path
) -> None:
    broker.respond = StoredSchedules(stored(DAILY, state="cancelled"), stored(HOURLY))

    result = cli("apply", "-f", str(folder), "--owner", "sales", "-o", "json")

    assert result.exit_code == 0
    rows = {row["key"]: row for row in json.loads(result.stdout)}
    assert (rows["daily"]["action"], rows["hourly"]["action"]) == ("revive", "keep")
    assert rows["daily"]["note"] == "The schedule is cancelled and starts again."
    [put] = [request for request in broker.requests if request.verb == "schedule.put"]
    assert (put.body["key"], put.body["revive"]) == ("daily", True)


@pytest.mark.requirement("ASK-15")
@pytest.mark.parametrize(
    ("desired", "action"),
    [
        (DAILY, "keep"),
        ({**DAILY, "priority": 9}, "keep"),
        ({**DAILY, "when": {**DAILY["when"], "cron": "0 10 * * *"}}, "revive"),
    ],
    ids=["equal", "other priority", "other times"],
)
def test_apply_revives_a_completed_schedule_only_if_its_times_differ(
    cli: CommandLine, broker: FakeBroker, desired: dict[str, Any], action: str
) -> None:
    broker.respond = StoredSchedules(stored(DAILY, state="completed"))

    options = ("--owner", "sales", "--dry-run", "-o", "json")
    result = cli("apply", "-f", "-", *options, stdin=json.dumps([desired]))

    [row] = json.loads(result.stdout)
    assert row["action"] == action
    assert row["note"].startswith("The schedule is completed")


WITH_SECRET = {
    "key": "daily",
    "when": {"cron": "0 9 * * *"},
    "target": {"http": {"url": "https://a.example/", "headers": {"Cookie": "s3cret"}}},
}


def redacted(**fields: Any) -> dict[str, Any]:
    """Return the stored schedule `WITH_SECRET` as a service shows it."""
    http = {"url": "https://a.example/", "headers": {"Cookie": "***"}}
    return stored({**WITH_SECRET, "target": {"http": http}}, **fields)


@pytest.mark.requirement("P7")
def test_apply_of_a_redacted_export_changes_nothing(cli: CommandLine, broker: FakeBroker) -> None:
    broker.respond = StoredSchedules(redacted(), stored(HOURLY))
    exported = cli("export", "--owner", "sales")

    result = cli("apply", "-f", "-", "--owner", "sales", stdin=exported.stdout)

    assert "***" in exported.stdout
    assert result.exit_code != 0
    assert "target.http.headers.Cookie" in result.stderr
    assert commands_of(broker) == []


@pytest.mark.requirement("P7")
@pytest.mark.parametrize("is_equal", [True, False])
def test_apply_lets_the_service_compare_literal_secrets(
    cli: CommandLine, broker: FakeBroker, *, is_equal: bool
) -> None:
    schedules = StoredSchedules(redacted())
    conflict = {"code": "conflict", "field": "key", "reason": "The key has another body."}

    def respond(request: Request) -> Any:
        if request.verb == "schedule.put" and "expected_version" not in request.body:
            return RESPONSE if is_equal else {"ok": False, "error": conflict}
        return schedules(request)

    broker.respond = respond

    result = cli("apply", "-f", "-", "--owner", "sales", stdin=yaml.safe_dump(WITH_SECRET))

    assert result.exit_code == 0, result.stderr
    puts = [("schedule.put", "daily", None), ("schedule.put", "daily", 4)]
    assert commands_of(broker) == (puts[:1] if is_equal else puts)
    assert "s3cret" not in result.output + result.stderr


@pytest.mark.requirement("P7")
@pytest.mark.parametrize("schedules", [[], [{"priority": 9}], [{"state": "completed"}]])
def test_apply_prints_no_literal_secret(
    cli: CommandLine, broker: FakeBroker, schedules: list[dict[str, Any]]
) -> None:
    broker.respond = StoredSchedules(*(redacted(**fields) for fields in schedules))
    document = yaml.safe_dump({**WITH_SECRET, "priority": 3})

    for form in ("table", "json"):
        result = cli("apply", "-f", "-", "--owner", "sales", "-o", form, stdin=document)

        assert "daily" in result.stdout
        assert "s3cret" not in result.output + result.stderr


@pytest.mark.requirement("P7")
def test_reveal_is_sent_only_when_an_operator_asks_for_it(
    cli: CommandLine, broker: FakeBroker
) -> None:
    broker.respond = StoredSchedules(stored(WITH_SECRET))

    for command in (("export",), ("schedule", "get", "daily")):
        cli(*command)
        assert "reveal" not in broker.requests[-1].body
        result = cli(*command, "--reveal")
        assert broker.requests[-1].body["reveal"] is True
        assert "s3cret" in result.stdout
