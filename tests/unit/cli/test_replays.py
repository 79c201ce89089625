"""`harebell dlq replay` as a replay job, and `harebell dlq replays`."""

import json
from typing import Any

import pytest
from tests.unit.cli.conftest import CommandLine, FakeBroker, Request
from tests.unit.cli.rows import ID, JOB_ID, replay_job_row

from harebell.cli.arguments.values import rate_per_second
from harebell.cli.dlq import replay_progress
from harebell.contract.errors import InvalidInput

STARTED = {"ok": True, "id": JOB_ID, "status": "started", "state": "running", "total": 7}


@pytest.mark.requirement("ASK-2")
def test_dlq_replay_with_a_filter_starts_a_replay_job_with_its_options(
    cli: CommandLine, broker: FakeBroker
) -> None:
    broker.respond = lambda _: STARTED
    options = ("--canary", "3", "--rate", "30/m", "--abort-on-failure-ratio", "0.2")
    filters = ("--group", ID, "--until", "2h")

    result = cli("dlq", "replay", *filters, *options, "--pool", "slow", "--request-id", "r-1")

    assert (result.exit_code, JOB_ID in result.stdout) == (0, True)
    [request] = broker.requests
    assert (request.verb, request.body) == (
        "dlq.replay_job.start",
        {
            "select": {"group": ID, "until": "2026-11-20T12:00:00Z", "all": False},
            "canary": 3,
            "rate": 0.5,
            "abort_on_failure_ratio": 0.2,
            "pool": "slow",
            "dry_run": False,
            "request_id": "r-1",
        },
    )


@pytest.mark.requirement("S112")
def test_dlq_replay_with_all_selects_every_open_dead_letter(
    cli: CommandLine, broker: FakeBroker
) -> None:
    broker.respond = lambda _: STARTED

    assert cli("dlq", "replay", "--all").exit_code == 0
    assert broker.requests[0].body["select"] == {"all": True}
    assert broker.requests[0].body["request_id"].startswith("replay-")


@pytest.mark.requirement("ASK-2")
@pytest.mark.parametrize("option", [("--rate", "1"), ("--abort-on-failure-ratio", "0")])
def test_dlq_replay_by_id_starts_a_replay_job_when_it_has_an_option_of_replay_jobs(
    cli: CommandLine, broker: FakeBroker, option: tuple[str, str]
) -> None:
    broker.respond = lambda _: STARTED

    cli("dlq", "replay", ID, *option)

    assert broker.requests[0].verb == "dlq.replay_job.start"
    assert broker.requests[0].body["ids"] == [ID]


@pytest.mark.requirement("ASK-2")
def test_dlq_replay_dry_run_exits_with_no_match_when_no_dead_letter_matches(
    cli: CommandLine, broker: FakeBroker
) -> None:
    broker.respond = lambda _: {"ok": True, "status": "previewed", "total": 0}

    assert cli("dlq", "replay", "--all", "--dry-run").exit_code == 3
    assert broker.requests[0].body["dry_run"] is True


@pytest.mark.requirement("ASK-2")
@pytest.mark.parametrize(
    ("last", "code"),
    [
        (replay_job_row("done", succeeded=7), 0),
        (replay_job_row("done", succeeded=6, failed=1), 4),
        (replay_job_row("aborted", failed=1), 1),
    ],
)
def test_dlq_replay_follow_prints_the_replay_job_after_its_end(
    cli: CommandLine,
    broker: FakeBroker,
    monkeypatch: pytest.MonkeyPatch,
    last: dict[str, Any],
    code: int,
) -> None:
    monkeypatch.setattr(replay_progress, "POLL_INTERVAL", 0)
    jobs = iter([replay_job_row("running"), replay_job_row("running", taken=3, succeeded=2), last])

    def respond(request: Request) -> dict[str, Any]:
        if request.verb == "dlq.replay_job.start":
            return STARTED
        return {"ok": True, **next(jobs)}

    broker.respond = respond

    result = cli("dlq", "replay", "--all", "--follow", "-o", "json")

    printed = json.loads(result.stdout)
    assert result.exit_code == code
    assert {name: printed[name] for name in last} == last


@pytest.mark.requirement("ASK-2")
def test_dlq_replays_get_prints_the_outcome_of_each_dead_letter(
    cli: CommandLine, broker: FakeBroker
) -> None:
    item = {"position": 1, "id": ID, "status": "replayed", "outcome": "succeeded"}

    def respond(request: Request) -> dict[str, Any]:
        if request.verb == "dlq.replay_job.items":
            return {"ok": True, "items": [item]}
        return {"ok": True, **replay_job_row("done", succeeded=7)}

    broker.respond = respond

    result = cli("dlq", "replays", "get", JOB_ID, "--items")

    assert result.exit_code == 0
    assert result.stdout.split()[-4:] == ["1", ID, "replayed", "succeeded"]


@pytest.mark.requirement("S113", "ASK-2")
def test_dlq_replays_get_prints_the_wait_as_a_sentence(
    cli: CommandLine, broker: FakeBroker
) -> None:
    text = "The canary waits for 5 runs that the open circuit breaker of acme.example:443 defers."
    wait = {"code": "breaker", "text": text, "downstream": "acme.example:443"}
    broker.respond = lambda _: {"ok": True, **replay_job_row("running"), "waiting_for": wait}

    shown = cli("dlq", "replays", "get", JOB_ID)
    as_json = cli("dlq", "replays", "get", JOB_ID, "-o", "json")

    assert [line.split(maxsplit=2)[2] for line in shown.stdout.splitlines() if text in line] == [
        text
    ]
    found = json.loads(as_json.stdout)["waiting_for"]
    assert {name: found[name] for name in wait} == wait


@pytest.mark.requirement("ASK-2")
def test_dlq_replays_list_prints_each_replay_job(cli: CommandLine, broker: FakeBroker) -> None:
    broker.respond = lambda _: {"ok": True, "items": [replay_job_row("running")]}

    result = cli("dlq", "replays", "list", "--limit", "3")

    assert (result.exit_code, JOB_ID in result.stdout) == (0, True)
    assert broker.requests[0].body == {"limit": 3}


@pytest.mark.requirement("ASK-2")
@pytest.mark.parametrize("verb", ["pause", "resume", "abort"])
def test_dlq_replays_command_fails_when_it_changes_nothing(
    cli: CommandLine, broker: FakeBroker, verb: str
) -> None:
    broker.respond = lambda _: {**STARTED, "status": "unchanged"}

    assert cli("dlq", "replays", verb, JOB_ID, "--note", "why").exit_code == 1
    [request] = broker.requests
    assert request.verb == f"dlq.replay_job.{verb}"
    assert request.body == {"id": JOB_ID, "note": "why"}


@pytest.mark.parametrize(
    ("text", "rate"),
    [
        (None, None),
        ("5", 5.0),
        ("5/s", 5.0),
        ("30/m", 0.5),
        ("100/m", 1.666667),
        ("3600/h", 1.0),
        ("1/h", 0.000278),
    ],
)
def test_rate_is_per_second_minute_or_hour(text: str | None, rate: float | None) -> None:
    assert rate_per_second(text) == rate


def test_rate_names_its_form_when_it_is_invalid() -> None:
    with pytest.raises(InvalidInput, match="5/s"):
        rate_per_second("fast")
