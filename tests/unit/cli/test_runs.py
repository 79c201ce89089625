import json
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.unit.cli.conftest import Asked, CommandLine, FakeHarebell

RUN = "6f0a7c0e-3d2b-5b53-9c1e-4d7a0f2b8e11@20261120T140000000Z"


@pytest.mark.parametrize(
    ("since", "instant"),
    [
        ("10m", "2026-11-20T13:50:00Z"),
        ("1h30m", "2026-11-20T12:30:00Z"),
        ("PT1H", "2026-11-20T13:00:00Z"),
        ("2026-11-19T08:00:00+01:00", "2026-11-19T07:00:00Z"),
    ],
)
def test_since_is_an_instant_or_how_long_ago(
    cli: "CommandLine", harebell: "FakeHarebell", since: str, instant: str
) -> None:
    cli("run", "list", "--since", since)

    assert harebell.asked[0].body == {"limit": 50, "since": instant}


@pytest.mark.parametrize("since", ["yesterday", "2026-11-19T08:00:00", "10 m", ""])
def test_a_since_that_is_neither_is_wrong_usage(
    cli: "CommandLine", harebell: "FakeHarebell", since: str
) -> None:
    result = cli("run", "list", "--since", since)

    assert result.exit_code == 2
    assert result.stderr.startswith("harebell: since: ")
    assert harebell.asked == []


def test_a_list_longer_than_a_page_is_read_on(cli: "CommandLine", harebell: "FakeHarebell") -> None:
    def page(asked: "Asked") -> dict[str, Any]:
        rows = [{"run_id": RUN, "state": "succeeded"}] * asked.body["limit"]
        return {"ok": True, "items": rows, "next": "more"}

    harebell.answer = page

    result = cli("run", "list", "--key", "hello", "--limit", "1200", "-o", "json")

    assert len(json.loads(result.stdout)) == 1200
    assert [asked.body["limit"] for asked in harebell.asked] == [500, 500, 200]
    assert [asked.body.get("after") for asked in harebell.asked] == [None, "more", "more"]


def test_a_run_is_shown_with_its_attempts(cli: "CommandLine", harebell: "FakeHarebell") -> None:
    attempt = {"replay_number": 0, "number": 1, "outcome": "failed", "http_status": 503}
    harebell.answer = lambda _: {
        "ok": True,
        "item": {"run_id": RUN, "state": "retrying", "attempts": [attempt]},
    }

    result = cli("run", "get", RUN)

    assert result.exit_code == 0
    assert harebell.asked[0].body == {"run_id": RUN}
    assert "503" in result.stdout.splitlines()[-1]


@pytest.mark.parametrize(("status", "code"), [("cancelled", 0), ("in_flight", 1)])
def test_a_run_that_has_begun_is_not_cancelled(
    cli: "CommandLine", harebell: "FakeHarebell", status: str, code: int
) -> None:
    harebell.answer = lambda _: {"ok": True, "run_id": RUN, "status": status, "state": "running"}

    assert cli("run", "cancel", RUN).exit_code == code
