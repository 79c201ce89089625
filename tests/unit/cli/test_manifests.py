"""`apply` and `export`: files are what is, for one owner and no other."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from harebell.contract.schedule import Definition

if TYPE_CHECKING:
    from tests.unit.cli.conftest import Asked, CommandLine, FakeHarebell

ID = "6f0a7c0e-3d2b-5b53-9c1e-4d7a0f2b8e11"
TARGET = {"task": {"name": "acme.report"}}
HOURLY = {"key": "hourly", "when": {"cron": "0 * * * *"}, "target": TARGET}
DAILY = {"key": "daily", "when": {"cron": "0 9 * * *", "start": "2026-01-01"}, "target": TARGET}
STORED = {"ok": True, "id": ID, "version": 1, "status": "created", "state": "active"}


class Shelf:
    """Schedules by key, as `schedule.get` and `schedule.list` show them."""

    def __init__(self, *stored: dict[str, Any]) -> None:
        self.stored = {each["key"]: each for each in stored}

    def __call__(self, asked: "Asked") -> Any:
        match asked.verb:
            case "schedule.get":
                found = self.stored.get(asked.body["key"])
                error = {"code": "not_found", "reason": "there is no such schedule"}
                return {"ok": True, "item": found} if found else {"ok": False, "error": error}
            case "schedule.list":
                owner = asked.body.get("owner")
                rows = [row for row in self.stored.values() if owner in (None, row["owner"])]
                return {"ok": True, "items": rows}
            case _:
                return STORED


def kept(body: dict[str, Any], owner: str = "sales", **given: Any) -> dict[str, Any]:
    model = Definition.model_validate({**body, "owner": owner})
    definition = model.model_dump(mode="json", by_alias=True, exclude_none=True)
    row = {"key": body["key"], "owner": owner, "version": 4, "state": "active", **given}
    return row | {"definition": definition}


def changes(harebell: "FakeHarebell") -> list[tuple[str, str, Any]]:
    return [
        (asked.verb, asked.body["key"], asked.body.get("expected_version"))
        for asked in harebell.asked
        if asked.exchange == "harebell.commands"
    ]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "hourly.json").write_text(json.dumps([HOURLY]))
    (tmp_path / "daily.yaml").write_text(yaml.safe_dump(DAILY))
    (tmp_path / "notes.txt").write_text("no schedule")
    return tmp_path


@pytest.mark.requirement("ASK-15")
def test_what_is_missing_is_made_and_what_differs_is_updated(
    cli: "CommandLine", harebell: "FakeHarebell", folder: Path
) -> None:
    """Ask 15."""
    harebell.answer = Shelf(kept({**DAILY, "priority": 9}))

    result = cli("apply", "-f", str(folder), "--owner", "sales", "-o", "json")

    assert result.exit_code == 0, result.stderr
    assert sorted(changes(harebell)) == [
        ("schedule.put", "daily", 4),
        ("schedule.put", "hourly", None),
    ]
    rows = {row["key"]: row for row in json.loads(result.stdout)}
    assert rows["daily"]["changes"][0]["words"] == "priority: 9 -> (none)"


@pytest.mark.requirement("ASK-15")
def test_a_dry_run_shows_the_differences_and_changes_nothing(
    cli: "CommandLine", harebell: "FakeHarebell", folder: Path
) -> None:
    harebell.answer = Shelf(kept(DAILY), kept({**HOURLY, "key": "old"}))

    result = cli(
        "apply", "-f", str(folder), "--owner", "sales", "--prune", "--dry-run", "-o", "json"
    )

    assert result.exit_code == 0
    actions = {row["key"]: row["action"] for row in json.loads(result.stdout)}
    assert actions == {"daily": "keep", "hourly": "create", "old": "cancel"}
    assert changes(harebell) == []


@pytest.mark.requirement("ASK-15")
def test_pruning_touches_no_schedule_of_another_owner(
    cli: "CommandLine", harebell: "FakeHarebell", folder: Path
) -> None:
    """Ask 15."""
    harebell.answer = Shelf(
        kept(DAILY),
        kept(HOURLY),
        kept({**HOURLY, "key": "old"}),
        kept({**HOURLY, "key": "gone"}, state="cancelled"),
        kept({**HOURLY, "key": "theirs"}, owner="finance"),
    )

    result = cli("apply", "-f", str(folder), "--owner", "sales", "--prune")

    assert result.exit_code == 0
    assert changes(harebell) == [("schedule.cancel", "old", None)]


@pytest.mark.requirement("ASK-16")
def test_a_key_that_is_another_owners_stops_all_of_it(
    cli: "CommandLine", harebell: "FakeHarebell", folder: Path
) -> None:
    harebell.answer = Shelf(kept(DAILY, owner="finance"))

    result = cli("apply", "-f", str(folder), "--owner", "sales")

    assert result.exit_code == 2
    assert "'daily' belongs to 'finance'" in result.stderr
    assert changes(harebell) == []


@pytest.mark.parametrize(
    "items",
    [
        [{**DAILY, "owner": "finance"}],
        [DAILY, DAILY],
        [{"when": {"now": True}, "target": TARGET}],
        [{**DAILY, "colour": "blue"}],
        [{**DAILY, "expected_version": "any"}],
    ],
)
def test_files_that_cannot_be_this_owners_are_wrong_usage(
    cli: "CommandLine", harebell: "FakeHarebell", items: list[Any]
) -> None:
    result = cli("apply", "-f", "-", "--owner", "sales", stdin=json.dumps(items))

    assert result.exit_code == 2
    assert harebell.asked == []


def test_what_was_cancelled_comes_back_upon_its_version(
    cli: "CommandLine", harebell: "FakeHarebell"
) -> None:
    harebell.answer = Shelf(kept(DAILY, state="cancelled"))

    cli("apply", "-f", "-", "--owner", "sales", stdin=json.dumps(DAILY))

    assert changes(harebell) == [("schedule.put", "daily", 4)]


def test_a_timing_left_to_the_tenant_is_no_difference(
    cli: "CommandLine", harebell: "FakeHarebell"
) -> None:
    harebell.answer = Shelf(kept({**DAILY, "when": {"every": "5m"}}))
    timeless = {name: value for name, value in DAILY.items() if name != "when"}

    cli("apply", "-f", "-", "--owner", "sales", stdin=json.dumps(timeless))

    assert changes(harebell) == []


@pytest.mark.parametrize("form", ["table", "json"])
def test_what_is_exported_is_applied_without_a_difference(
    cli: "CommandLine", harebell: "FakeHarebell", form: str
) -> None:
    harebell.answer = Shelf(
        kept(DAILY),
        kept({**HOURLY, "tags": ["on"]}),
        kept({**HOURLY, "key": "x"}, state="cancelled"),
    )

    exported = cli("export", "--owner", "sales", "-o", form)
    result = cli("apply", "-f", "-", "--owner", "sales", "-o", "json", stdin=exported.stdout)

    assert exported.exit_code == 0
    assert [row["action"] for row in json.loads(result.stdout)] == ["keep", "keep"]
    assert changes(harebell) == []


def test_a_folder_that_is_not_there_is_wrong_usage(cli: "CommandLine") -> None:
    result = cli("apply", "-f", "nowhere", "--owner", "sales")

    assert result.exit_code == 2
    assert "nowhere" in result.stderr
