"""Tests of rows whose columns contradict each other: one damaged row for each check."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from tests.fakes.audit import AuditedTicker, attempt_row, run_row
from tests.fakes.tickets import NINE, after

from harebell.audit.model.row_checks import find_invalid, find_invalid_schedule
from harebell.domain.run_states import RunState

EVERY = {"every": "20s", "start": "2026-11-20T09:00:00Z"}
STAGED: dict[str, Any] = {}
RUNNING: dict[str, Any] = {
    "state": RunState.RUNNING,
    "attempt": 1,
    "lease_holder": "executor-1",
    "lease_until": after(15),
    "seq": 2,
}
SUCCEEDED: dict[str, Any] = {
    "state": RunState.SUCCEEDED,
    "attempt": 1,
    "outcome": "succeeded",
    "started_at": NINE,
    "finished_at": after(1),
    "seq": 3,
    "attempts": (attempt_row(1, "succeeded", NINE),),
}
SKIPPED: dict[str, Any] = {
    "state": RunState.SKIPPED,
    "reason": "missed",
    "outcome": "skipped",
    "finished_at": after(1),
    "range_until": after(40),
    "range_count": 3,
}
RETRYING: dict[str, Any] = {
    "state": RunState.RETRYING,
    "attempt": 1,
    "outcome": "failed",
    "next_attempt_at": after(5),
    "seq": 3,
}


@pytest.fixture
def ticker() -> AuditedTicker:
    ticker = AuditedTicker(NINE)
    ticker.put(EVERY, retry={"max_attempts": 3})
    return ticker


@pytest.mark.requirement("S40")
@pytest.mark.parametrize("columns", [STAGED, RUNNING, SUCCEEDED, SKIPPED, RETRYING])
def test_row_is_valid_when_the_ledger_writes_it(
    ticker: AuditedTicker, columns: dict[str, Any]
) -> None:
    assert list(find_invalid(ticker.schedule, run_row(NINE, **columns))) == []


@pytest.mark.requirement("S40")
@pytest.mark.parametrize(
    ("columns", "damage", "text"),
    [
        (STAGED, {"state": "lost"}, "not a run state"),
        (STAGED, {"finished_at": NINE}, "disagree whether the run has ended"),
        (SUCCEEDED, {"finished_at": None}, "disagree whether the run has ended"),
        (SUCCEEDED, {"outcome": None}, "without an outcome"),
        (STAGED, {"lease_until": NINE}, "has a lease"),
        (RUNNING, {"lease_until": None}, "has a lease"),
        (RUNNING, {"lease_holder": None}, "has a lease"),
        (RUNNING, {"attempt": 0}, "requires an attempt"),
        (STAGED, {"attempt": 1}, "staged and has an attempt"),
        (RETRYING, {"next_attempt_at": None}, "no time for the next attempt"),
        (RUNNING, {"next_attempt_at": NINE}, "does not wait"),
        (SUCCEEDED, {"started_at": after(9)}, "ended before it started"),
        (SUCCEEDED, {"due_at": after(30)}, "started before it was due"),
        (STAGED, {"due_at": after(-1)}, "due before its scheduled time"),
        (STAGED, {"seq": 0}, "counter"),
        (STAGED, {"replay_number": -1}, "counter"),
        (SKIPPED, {"range_count": None}, "range"),
        (SKIPPED, {"range_until": after(-20)}, "range"),
        (SUCCEEDED, {"range_until": NINE, "range_count": 1}, "range"),
        (STAGED, {"version": 7}, "never been in force"),
        (RUNNING, {"attempt": 4}, "allows 3 attempts"),
        (STAGED, {"tenant": "other"}, "tenant of the run is other"),
    ],
)
def test_row_is_invalid_when_two_columns_contradict_each_other(
    ticker: AuditedTicker, columns: dict[str, Any], damage: dict[str, Any], text: str
) -> None:
    run = replace(run_row(NINE, **columns), **damage)

    assert any(text in each.text for each in find_invalid(ticker.schedule, run))


def test_row_is_valid_when_the_clocks_of_two_processes_differ_slightly(
    ticker: AuditedTicker,
) -> None:
    early = {**SUCCEEDED, "started_at": NINE - timedelta(milliseconds=20), "finished_at": NINE}

    assert list(find_invalid(ticker.schedule, run_row(NINE, **early))) == []


def test_active_schedule_is_invalid_when_no_ticker_will_read_it(ticker: AuditedTicker) -> None:
    ignored = replace(ticker.schedule, next_at=None)

    assert len(list(find_invalid_schedule(ignored))) == 1
    assert list(find_invalid_schedule(ticker.schedule)) == []
    assert list(find_invalid_schedule(replace(ignored, awaited_run=NINE))) == []


@pytest.mark.requirement("S40")
@pytest.mark.parametrize(
    ("columns", "text"),
    [
        ({"executions": 1, "failures": 2, "last_run": NINE}, "2 failures in 1 executions"),
        ({"executions": 0, "failures": -1}, "-1 failures in 0 executions"),
        ({"executions": 1, "last_run": None}, "no last run"),
    ],
)
def test_schedule_is_invalid_when_its_counts_contradict_each_other(
    ticker: AuditedTicker, columns: dict[str, Any], text: str
) -> None:
    (finding,) = find_invalid_schedule(replace(ticker.schedule, **columns))

    assert text in finding.text


@pytest.mark.requirement("S40")
def test_schedule_is_valid_when_its_runs_are_counted(ticker: AuditedTicker) -> None:
    for _ in range(4):
        ticker.run_due()
        ticker.wait(30).stage_all()

    schedule = ticker.schedule

    assert schedule.executions > 0
    assert schedule.last_run is not None
    assert list(find_invalid_schedule(schedule)) == []
