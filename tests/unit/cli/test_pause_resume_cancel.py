"""Orders to one schedule or to many, and changes of single fields and instants."""

import json
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.unit.cli.conftest import CommandLine, FakeHarebell

ID = "6f0a7c0e-3d2b-5b53-9c1e-4d7a0f2b8e11"
STORED: dict[str, Any] = {
    "ok": True, "id": ID, "key": "daily", "version": 2, "status": "updated", "state": "active"
}  # fmt: skip
MANY: dict[str, Any] = {
    "ok": True, "receipt": "pause-20261120", "changed": [ID], "refused": {}, "in_flight": []
}  # fmt: skip


def test_many_are_paused_by_selector_and_the_receipt_is_printed(
    cli: "CommandLine", harebell: "FakeHarebell"
) -> None:
    """Ask 22."""
    harebell.answer = lambda asked: MANY | {"receipt": asked.body["request_id"]}

    result = cli("schedule", "pause", "--tag", "reports", "--owner", "sales", "--until", "2h")

    body = harebell.asked[0].body
    assert body["select"] == {"tag": "reports", "owner": "sales"}
    assert body["until"] == "2026-11-20T16:00:00Z"
    assert body["request_id"].startswith("pause-20261120T140000Z-")
    assert result.exit_code == 0
    assert body["request_id"] in result.stdout


@pytest.mark.requirement("ASK-22")
def test_a_receipt_resumes_exactly_its_set(cli: "CommandLine", harebell: "FakeHarebell") -> None:
    harebell.answer = lambda _: MANY

    result = cli("schedule", "resume", "--receipt", "pause-1", "--request-id", "back-1")

    assert result.exit_code == 0
    assert harebell.asked[0].body == {"receipt": "pause-1", "request_id": "back-1"}


@pytest.mark.parametrize(
    ("changed", "refused", "exit_code"),
    [([], {}, 3), ([ID], {"other": "is cancelled"}, 4), ([], {"other": "is cancelled"}, 1)],
)
def test_what_became_of_many_is_the_exit_code(
    cli: "CommandLine",
    harebell: "FakeHarebell",
    changed: list[str],
    refused: dict[str, str],
    exit_code: int,
) -> None:
    harebell.answer = lambda _: MANY | {"changed": changed, "refused": refused}

    result = cli("schedule", "cancel", "--state", "paused")

    assert result.exit_code == exit_code
    assert ("other: is cancelled" in result.stderr) == bool(refused)


@pytest.mark.parametrize(
    "words",
    [
        ["pause", "daily", "--tag", "reports"],
        ["resume", "--receipt", "r", "--tag", "reports"],
        ["cancel"],
    ],
)
def test_one_or_many_but_not_both(
    cli: "CommandLine", harebell: "FakeHarebell", words: list[str]
) -> None:
    assert cli("schedule", *words).exit_code == 2
    assert harebell.asked == []


def test_a_patch_is_typed_field_by_field(cli: "CommandLine", harebell: "FakeHarebell") -> None:
    harebell.answer = lambda _: STORED

    result = cli(
        "schedule", "patch", "daily", "--set", "retry.max_attempts=3", "--set", "owner=null",
        "--set", "name=Daily sales", "--effective-at", "1h", "--expected-version", "1",
    )  # fmt: skip

    assert result.exit_code == 0, result.stderr
    assert harebell.asked[0].body == {
        "key": "daily",
        "set": {"retry": {"max_attempts": 3}, "owner": None, "name": "Daily sales"},
        "effective_at": "2026-11-20T15:00:00Z",
        "expected_version": 1,
    }


@pytest.mark.parametrize("words", [[], ["--set", "owner"], ["--set", ".=1"]])
def test_a_patch_of_nothing_is_wrong_usage(cli: "CommandLine", words: list[str]) -> None:
    assert cli("schedule", "patch", "daily", *words).exit_code == 2


def test_a_patch_may_be_a_file(cli: "CommandLine", harebell: "FakeHarebell") -> None:
    harebell.answer = lambda _: STORED
    change = {"when": {"cron": "0 10 * * *"}}

    cli("schedule", "patch", "daily", "-f", "-", stdin=json.dumps(change))

    assert harebell.asked[0].body == {"key": "daily", "set": change}


def test_an_instant_is_skipped(cli: "CommandLine", harebell: "FakeHarebell") -> None:
    harebell.answer = lambda _: STORED | {"status": "skipped"}

    result = cli("schedule", "skip", "daily", "--at", "2026-12-25T09:00:00+01:00")

    assert result.exit_code == 0
    assert harebell.asked[0].body == {"key": "daily", "at": "2026-12-25T08:00:00Z"}


def test_a_backfill_is_previewed_then_made(cli: "CommandLine", harebell: "FakeHarebell") -> None:
    runs = [f"{ID}@20261120T120000000Z"]
    harebell.answer = lambda _: STORED | {"status": "previewed", "runs": runs}

    result = cli("schedule", "backfill", "daily", "--from", "3h", "--to", "1h", "--dry-run")

    assert harebell.asked[0].body == {
        "key": "daily",
        "from": "2026-11-20T11:00:00Z",
        "to": "2026-11-20T13:00:00Z",
        "max": 100,
        "dry_run": True,
    }
    assert result.exit_code == 0
    assert runs[0] in result.stdout


def test_a_held_run_is_resolved(cli: "CommandLine", harebell: "FakeHarebell") -> None:
    run = f"{ID}@20261120T120000000Z"
    harebell.answer = lambda _: {"ok": True, "run_id": run, "status": "resolved", "state": "staged"}

    result = cli("run", "resolve", run, "--as", "retry", "--note", "it never began")

    assert result.exit_code == 0
    assert harebell.asked[0].verb == "run.resolve"
    assert harebell.asked[0].body == {"run_id": run, "as": "retry", "note": "it never began"}
