"""`harebell top`: the load of lanes, and one reading with the responses of a fake broker."""

import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from tests.unit.cli.conftest import NOW, CommandLine, FakeBroker, Request

from harebell.cli.top.load import lane_loads, quantile
from harebell.cli.top.queries import MAX_OPEN
from harebell.contract.ids import run_id
from harebell.contract.types import instant_text
from harebell.contract.views import RunView

SCHEDULE = UUID(int=1)


def run_json(number: int = 0, *, due: float = -10, **changes: Any) -> dict[str, Any]:
    """Return the view of a run that is due `due` seconds after now."""
    at = NOW + timedelta(seconds=due, milliseconds=number)
    fields = {
        "run_id": run_id(SCHEDULE, at),
        "schedule_id": str(SCHEDULE),
        "scheduled_for": instant_text(at),
        "due_at": instant_text(at),
        "state": "succeeded",
        "attempt": 1,
        "pool": "default",
        "lane": "normal",
        "version": 1,
    }
    return fields | changes


def run_view(number: int = 0, **changes: Any) -> RunView:
    return RunView.model_validate_json(json.dumps(run_json(number, **changes)))


def test_lane_counts_the_starts_of_the_last_minute_and_their_lateness() -> None:
    late = [run_view(number, late_ms=float(number)) for number in range(1, 101)]
    older = run_view(due=-61, late_ms=5_000.0)
    replayed = run_view(200, late_ms=5_000.0, replay_number=1)
    without_start = run_view(201, state="skipped")

    [load] = lane_loads([*late, older, replayed, without_start], NOW)

    assert (load.started, load.late_p50_ms, load.late_p99_ms) == (100, 50.0, 99.0)
    assert (load.running, load.waiting, load.oldest_s) == (0, 0, None)


def test_lane_counts_the_due_runs_that_wait() -> None:
    waiting = run_view(due=-30, state="staged")
    retrying = run_view(
        due=-90, state="retrying", next_attempt_at=instant_text(NOW - timedelta(seconds=2))
    )
    resting = run_view(
        due=-80, state="retrying", next_attempt_at=instant_text(NOW + timedelta(seconds=2))
    )
    planned = run_view(due=30, state="staged")
    running = run_view(due=-20, state="running")

    [load] = lane_loads([waiting, retrying, resting, planned, running, running], NOW)

    assert (load.waiting, load.oldest_s, load.running, load.started) == (2, 30.0, 1, 0)


def test_lanes_are_separate_and_the_longest_backlog_is_first() -> None:
    runs = [
        run_view(1, lane="high"),
        run_view(2, pool="gpu", state="staged"),
        run_view(3, pool="gpu", lane="low"),
    ]

    loads = lane_loads(runs, NOW)

    assert [(each.pool, each.lane) for each in loads] == [
        ("gpu", "normal"),
        ("default", "high"),
        ("gpu", "low"),
    ]


@pytest.mark.parametrize(
    ("values", "share", "expected"),
    [
        ([], 0.5, None),
        ([3.0], 0.99, 3.0),
        ([1.0, 2.0], 0.5, 1.0),
        ([3.0, 1.0, 2.0], 0.5, 2.0),
        ([float(n) for n in range(1, 201)], 0.99, 198.0),
    ],
)
def test_quantile_is_a_value_of_the_list(
    values: list[float], share: float, expected: float | None
) -> None:
    assert quantile(values, share) == expected


def responses(**items: list[dict[str, Any]]) -> Callable[[Request], Any]:
    """Return the responses of an installation. `items` has the rows of some verbs."""

    def respond(request: Request) -> Any:
        name = request.verb.replace(".", "_")
        if request.verb == "run.forecast":
            return {
                "ok": True,
                "at": instant_text(NOW),
                "from": instant_text(NOW),
                "to": instant_text(NOW + timedelta(hours=2)),
                "by": "pool",
                "hours": [instant_text(NOW + timedelta(hours=hour)) for hour in range(2)],
                "runs": [7, 9],
                "late_p50_ms": [None, None],
                "late_p99_ms": [None, None],
                "groups": [{"name": "gpu", "total": 16, "runs": [7, 9]}],
            }
        state = request.body.get("state")
        if request.verb == "run.list" and state is not None:
            name = f"run_list_{state}"
        return {"ok": True, "items": items.get(name, [])}

    return respond


BREAKER = {
    "downstream": "http:acme.example",
    "effective_state": "open",
    "state": "open",
    "failed": 5,
    "attempts": 6,
    "reason": "failure_ratio",
}
GROUP = {
    "id": str(UUID(int=5)),
    "state": "open",
    "open": 4,
    "dead_letters": 9,
    "trend": "rising",
    "last_hour": 3,
    "hour_before": 1,
    "first_at": instant_text(NOW),
    "last_at": instant_text(NOW),
    "target": "http POST acme.example:443",
    "error_code": "http_503",
    "message": "Service \x1b[31m Unavailable",
}


def test_top_prints_one_reading_without_a_terminal(cli: CommandLine, broker: FakeBroker) -> None:
    broker.respond = responses(
        run_list=[run_json(1, late_ms=12.0)],
        run_list_staged=[run_json(2, state="staged", due=-5)],
        run_list_running=[run_json(3, state="running")],
        breaker_list=[BREAKER],
        dlq_group_list=[GROUP],
    )

    result = cli("top", "--tenant", "acme")

    lines = [line.split() for line in result.stdout.splitlines()]
    assert result.exit_code == 0
    title = "harebell top acme 14:00:00 UTC running 1 waiting 1 dead letters 4"
    assert " ".join(lines[0]) == title
    assert ["default", "normal", "1", "12", "ms", "12", "ms", "1", "1", "5.0", "s"] in lines
    assert any(line[:2] == ["http:acme.example", "open"] for line in lines)
    assert "4" in next(line for line in lines if "http_503" in line)
    assert "\x1b" not in result.stdout
    assert {each.tenant for each in broker.requests} == {"acme"}


def test_top_prints_json_with_every_part(cli: CommandLine, broker: FakeBroker) -> None:
    broker.respond = responses(run_list=[run_json(1, late_ms=12.0)], dlq_group_list=[GROUP])

    found = json.loads(cli("top", "--json").stdout)

    assert found["lanes"] == [
        {
            "pool": "default",
            "lane": "normal",
            "started": 1,
            "late_p50_ms": 12.0,
            "late_p99_ms": 12.0,
            "running": 0,
            "waiting": 0,
            "oldest_s": None,
        }
    ]
    assert (found["dead_letters"]["open"], found["breakers"]) == (4, [])
    assert (found["is_partial"], found["all_tenants"]) == (False, None)
    assert found == json.loads(cli("top", "-o", "json").stdout)


def test_top_of_an_operator_adds_all_tenants(cli: CommandLine, broker: FakeBroker) -> None:
    broker.respond = responses()

    result = cli("top", "--all", "--once")

    lines = [line.split() for line in result.stdout.splitlines()]
    assert ["gpu", "7", "9"] in lines
    assert "No run was due within the last minute" in result.stdout
    assert "No breaker is open." in result.stdout
    assert "No dead letter is open." in result.stdout
    assert "run.forecast" in {each.verb for each in broker.requests}


def test_top_says_when_a_query_had_more_rows(cli: CommandLine, broker: FakeBroker) -> None:
    rows = [run_json(number, state="staged") for number in range(MAX_OPEN)]
    broker.respond = responses(run_list_staged=rows)

    result = cli("top")

    assert f"waiting {MAX_OPEN}" in result.stdout
    assert "(the counts are minimums)" in result.stdout


def test_top_asks_for_a_bounded_number_of_rows(cli: CommandLine, broker: FakeBroker) -> None:
    broker.respond = responses()

    cli("top")

    lists = [each.body for each in broker.requests if each.verb == "run.list"]
    assert [each.get("state") for each in lists] == [None, "retrying", "staged", "running"]
    assert all(each["limit"] <= MAX_OPEN for each in lists)
    assert all(each["until"] == instant_text(NOW) for each in lists)


@pytest.mark.parametrize("interval", ["0.5", "61"])
def test_top_refuses_an_interval_out_of_bounds(cli: CommandLine, interval: str) -> None:
    result = cli("top", "--interval", interval)

    assert result.exit_code == 2


def test_top_fails_with_one_line_without_a_broker(cli: CommandLine, broker: FakeBroker) -> None:
    broker.is_up = False

    result = cli("top")

    assert (result.exit_code, result.stdout) == (1, "")
    assert len(result.stderr.splitlines()) == 1
