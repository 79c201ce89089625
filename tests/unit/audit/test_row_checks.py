"""Columns that contradict each other: each is made here, and found."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from tests.fakes.audit import Audited, a_run
from tests.fakes.tickets import NINE, after

from harebell.audit.model.records import Attempt
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
    "attempts": (Attempt(1, 1, "succeeded", NINE),),
}
SKIPPED: dict[str, Any] = {
    "state": RunState.SKIPPED,
    "reason": "catch_up",
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
def ticking() -> Audited:
    ticking = Audited(NINE)
    ticking.put(EVERY, retry={"max_attempts": 3})
    return ticking


@pytest.mark.requirement("S40")
@pytest.mark.parametrize("columns", [STAGED, RUNNING, SUCCEEDED, SKIPPED, RETRYING])
def test_what_the_ledger_writes_is_possible(ticking: Audited, columns: dict[str, Any]) -> None:
    assert list(find_invalid(ticking.schedule, a_run(NINE, **columns))) == []


@pytest.mark.requirement("S40")
@pytest.mark.parametrize(
    ("columns", "damage", "word"),
    [
        (STAGED, {"state": "lost"}, "none of the model's"),
        (STAGED, {"finished_at": NINE}, "whether it is over"),
        (SUCCEEDED, {"finished_at": None}, "whether it is over"),
        (SUCCEEDED, {"outcome": None}, "without an outcome"),
        (STAGED, {"lease_until": NINE}, "has a lease"),
        (RUNNING, {"lease_until": None}, "has a lease"),
        (RUNNING, {"lease_holder": None}, "has a lease"),
        (RUNNING, {"attempt": 0}, "without an attempt"),
        (STAGED, {"attempt": 1}, "with an attempt"),
        (RETRYING, {"next_attempt_at": None}, "not for any time"),
        (RUNNING, {"next_attempt_at": NINE}, "does not wait"),
        (SUCCEEDED, {"started_at": after(9)}, "ended before it began"),
        (SUCCEEDED, {"due_at": after(30)}, "began before it was due"),
        (STAGED, {"due_at": after(-1)}, "due before its instant"),
        (STAGED, {"seq": 0}, "count up"),
        (STAGED, {"replay_number": 0}, "count up"),
        (SKIPPED, {"range_count": None}, "range"),
        (SKIPPED, {"range_until": after(-20)}, "range"),
        (SUCCEEDED, {"range_until": NINE, "range_count": 1}, "range"),
        (STAGED, {"version": 7}, "never been in force"),
        (RUNNING, {"attempt": 4}, "attempt 4 of 3"),
        (STAGED, {"tenant": "other"}, "its tenant is other"),
    ],
)
def test_a_combination_that_cannot_be_is_found(
    ticking: Audited, columns: dict[str, Any], damage: dict[str, Any], word: str
) -> None:
    run = replace(a_run(NINE, **columns), **damage)

    assert any(word in each.text for each in find_invalid(ticking.schedule, run))


def test_clocks_may_be_a_little_apart(ticking: Audited) -> None:
    early = {**SUCCEEDED, "started_at": NINE - timedelta(milliseconds=20), "finished_at": NINE}

    assert list(find_invalid(ticking.schedule, a_run(NINE, **early))) == []


def test_an_active_schedule_that_nobody_will_look_at_is_found(ticking: Audited) -> None:
    asleep = replace(ticking.schedule, next_at=None)

    assert len(list(find_invalid_schedule(asleep))) == 1
    assert list(find_invalid_schedule(ticking.schedule)) == []
    assert list(find_invalid_schedule(replace(asleep, awaiting=NINE))) == []
