"""`harebell run`."""

import json
from typing import Any

import pytest
from tests.unit.cli.conftest import CommandLine, FakeBroker, Request
from tests.unit.cli.rows import RUN_ID, attempt_row, run_row


@pytest.mark.parametrize(
    ("since", "instant"),
    [
        ("10m", "2026-11-20T13:50:00Z"),
        ("1h30m", "2026-11-20T12:30:00Z"),
        ("PT1H", "2026-11-20T13:00:00Z"),
        ("2026-11-19T08:00:00+01:00", "2026-11-19T07:00:00Z"),
    ],
)
def test_since_is_an_instant_or_a_duration_before_now(
    cli: CommandLine, broker: FakeBroker, since: str, instant: str
) -> None:
    cli("run", "list", "--since", since)

    assert broker.requests[0].body == {"limit": 50, "since": instant}


def test_run_list_filters_by_owner_name_and_tag(cli: CommandLine, broker: FakeBroker) -> None:
    cli("run", "list", "--owner", "team-sales", "--name", "Daily sales", "--tag", "eu")

    filters = {"owner": "team-sales", "name": "Daily sales", "tag": "eu"}
    assert broker.requests[0].body == {"limit": 50, **filters}


@pytest.mark.parametrize("since", ["yesterday", "2026-11-19T08:00:00", "10 m", ""])
def test_since_is_wrong_usage_when_it_is_no_time(
    cli: CommandLine, broker: FakeBroker, since: str
) -> None:
    result = cli("run", "list", "--since", since)

    assert result.exit_code == 2
    assert result.stderr.startswith("harebell: since: ")
    assert broker.requests == []


def test_run_list_reads_every_page_up_to_the_limit(cli: CommandLine, broker: FakeBroker) -> None:
    def page(request: Request) -> dict[str, Any]:
        return {"ok": True, "items": [run_row()] * request.body["limit"], "next": "more"}

    broker.respond = page

    result = cli("run", "list", "--key", "hello", "--limit", "1200", "-o", "json")

    assert len(json.loads(result.stdout)) == 1200
    assert [request.body["limit"] for request in broker.requests] == [500, 500, 200]
    assert [request.body.get("after") for request in broker.requests] == [None, "more", "more"]


def test_run_get_prints_the_attempts(cli: CommandLine, broker: FakeBroker) -> None:
    row = run_row(state="retrying", attempts=[attempt_row(http_status=503)])
    broker.respond = lambda _: {"ok": True, **row}

    result = cli("run", "get", RUN_ID)

    assert result.exit_code == 0
    assert broker.requests[0].body == {"run_id": RUN_ID}
    assert "503" in result.stdout.splitlines()[-1]


@pytest.mark.parametrize(("status", "code"), [("cancelled", 0), ("in_flight", 1)])
def test_run_cancel_fails_when_an_executor_has_claimed_the_run(
    cli: CommandLine, broker: FakeBroker, status: str, code: int
) -> None:
    broker.respond = lambda _: {"ok": True, "run_id": RUN_ID, "status": status, "state": "running"}

    assert cli("run", "cancel", RUN_ID).exit_code == code


def test_run_resolve_sends_the_resolution(cli: CommandLine, broker: FakeBroker) -> None:
    response = {"ok": True, "run_id": RUN_ID, "status": "resolved", "state": "staged"}
    broker.respond = lambda _: response

    result = cli("run", "resolve", RUN_ID, "--as", "retry", "--note", "it never began")

    assert result.exit_code == 0
    assert broker.requests[0].verb == "run.resolve"
    assert broker.requests[0].body == {"run_id": RUN_ID, "as": "retry", "note": "it never began"}
