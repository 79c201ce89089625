import json
from typing import TYPE_CHECKING, Any

import pytest

from harebell.cli.arguments.values import per_second
from harebell.cli.dlq import output
from harebell.contract.errors import InvalidInput

if TYPE_CHECKING:
    from tests.unit.cli.conftest import Asked, CommandLine, FakeHarebell

ONE = "6f0a7c0e-3d2b-5b53-9c1e-4d7a0f2b8e11"
JOB = "6f0a7c0e-3d2b-5b53-9c1e-4d7a0f2b8e13"
STARTED = {"ok": True, "job": JOB, "status": "started", "state": "running", "total": 7}


def progress(state: str, **counts: int) -> dict[str, Any]:
    zero = dict.fromkeys(("taken", "succeeded", "failed", "refused"), 0)
    return {"id": JOB, "state": state, "total": 7, **zero, **counts}


@pytest.mark.requirement("ASK-2")
def test_a_replay_of_many_is_asked_for_with_all_its_safeguards(
    cli: "CommandLine", harebell: "FakeHarebell"
) -> None:
    harebell.answer = lambda _: STARTED
    careful = ("--canary", "3", "--rate", "30/m", "--abort-on-failure-ratio", "0.2")

    which = ("--group", ONE, "--older-than", "2h")
    result = cli("dlq", "replay", *which, *careful, "--pool", "slow", "--request-id", "r-1")

    assert (result.exit_code, JOB in result.stdout) == (0, True)
    [asked] = harebell.asked
    assert (asked.verb, asked.body) == (
        "dlq.replay_job.start",
        {
            "select": {"group": ONE, "before": "2026-11-20T12:00:00Z", "all": False},
            "canary": 3,
            "rate": 0.5,
            "abort_on_failure_ratio": 0.2,
            "pool": "slow",
            "dry_run": False,
            "request_id": "r-1",
        },
    )


@pytest.mark.requirement("S112")
def test_all_that_are_open_are_replayed(cli: "CommandLine", harebell: "FakeHarebell") -> None:
    harebell.answer = lambda _: STARTED

    assert cli("dlq", "replay", "--all").exit_code == 0
    assert harebell.asked[0].body["select"] == {"all": True}
    assert harebell.asked[0].body["request_id"].startswith("replay-")


@pytest.mark.requirement("ASK-2")
def test_letters_by_name_with_a_safeguard_are_a_replay_of_many(
    cli: "CommandLine", harebell: "FakeHarebell"
) -> None:
    harebell.answer = lambda _: STARTED

    cli("dlq", "replay", ONE, "--rate", "1")

    assert (harebell.asked[0].verb, harebell.asked[0].body["ids"]) == (
        "dlq.replay_job.start",
        [ONE],
    )


@pytest.mark.requirement("ASK-2")
def test_a_dry_run_that_finds_none_is_nothing_matched(
    cli: "CommandLine", harebell: "FakeHarebell"
) -> None:
    harebell.answer = lambda _: {"ok": True, "status": "previewed", "total": 0}

    assert cli("dlq", "replay", "--all", "--dry-run").exit_code == 3
    assert harebell.asked[0].body["dry_run"] is True


@pytest.mark.requirement("ASK-2")
@pytest.mark.parametrize(
    ("last", "code"),
    [
        (progress("done", succeeded=7), 0),
        (progress("done", succeeded=6, failed=1), 4),
        (progress("aborted", failed=1), 1),
    ],
)
def test_a_replay_is_followed_to_its_end(
    cli: "CommandLine",
    harebell: "FakeHarebell",
    monkeypatch: pytest.MonkeyPatch,
    last: dict[str, Any],
    code: int,
) -> None:
    monkeypatch.setattr(output, "EVERY", 0)
    views = iter([progress("running"), progress("running", taken=3, succeeded=2), last])

    def answer(asked: "Asked") -> dict[str, Any]:
        return (
            STARTED if asked.verb == "dlq.replay_job.start" else {"ok": True, "item": next(views)}
        )

    harebell.answer = answer

    result = cli("dlq", "replay", "--all", "--follow", "-o", "json")

    assert (result.exit_code, json.loads(result.stdout)) == (code, last)


@pytest.mark.requirement("ASK-2")
def test_a_job_is_shown_with_what_became_of_each(
    cli: "CommandLine", harebell: "FakeHarebell"
) -> None:
    item = {"place": 1, "id": ONE, "status": "replayed", "outcome": "succeeded"}

    def answer(asked: "Asked") -> dict[str, Any]:
        if asked.verb == "dlq.replay_job.items":
            return {"ok": True, "items": [item]}
        return {"ok": True, "item": progress("done", succeeded=7)}

    harebell.answer = answer

    result = cli("dlq", "job", JOB, "--items")

    assert result.stdout.split()[-4:] == ["1", ONE, "replayed", "succeeded"]


@pytest.mark.requirement("ASK-2")
@pytest.mark.parametrize("verb", ["pause", "resume", "abort"])
def test_a_replay_is_steered(cli: "CommandLine", harebell: "FakeHarebell", verb: str) -> None:
    harebell.answer = lambda _: {**STARTED, "status": "unchanged"}

    assert cli("dlq", verb, JOB, "--note", "why").exit_code == 1
    [asked] = harebell.asked
    assert (asked.verb, asked.body) == (f"dlq.{verb}", {"job": JOB, "note": "why"})


def test_a_rate_is_of_a_second_a_minute_or_an_hour() -> None:
    assert [per_second(text) for text in (None, "5", "5/s", "30/m", "3600/h")] == [
        *(None, 5.0, 5.0, 0.5, 1.0)
    ]
    with pytest.raises(InvalidInput, match="5/s"):
        per_second("fast")
