"""Tests of stuck runs and schedules and of runs that started late, with one bound for both."""

from dataclasses import replace
from typing import Any

import pytest
from tests.fakes.audit import AuditedTicker, attempt_row, run_row
from tests.fakes.schedules import seconds
from tests.fakes.tickets import NINE, after

from harebell.audit.model.lateness import find_late, find_stuck, find_stuck_schedule
from harebell.audit.model.records import Run, Window
from harebell.domain.run_states import RunState

EVERY = {"every": "20s", "start": "2026-11-20T09:00:00Z"}
NOW = after(300)
WINDOW = Window(since=NINE, until=NOW, now=NOW)


def scheduled(when: dict[str, Any] = EVERY, **policies: Any) -> AuditedTicker:
    ticker = AuditedTicker(NINE)
    ticker.put(when, **policies)
    return ticker


def started(at: float, **columns: Any) -> Run:
    """A run whose first attempt started `at` seconds after its scheduled time."""
    return run_row(NINE, attempts=(attempt_row(1, "succeeded", after(at)),), **columns)


def test_run_is_late_when_its_first_attempt_started_after_the_bound() -> None:
    schedule = scheduled().schedule

    assert len(list(find_late(schedule, started(61), WINDOW))) == 1
    assert list(find_late(schedule, started(60), WINDOW)) == []


def test_running_run_is_late_by_its_start() -> None:
    run = run_row(NINE, state=RunState.RUNNING, started_at=after(61))

    assert len(list(find_late(scheduled().schedule, run, WINDOW))) == 1


def test_window_sets_the_bound_for_late_runs() -> None:
    window = replace(WINDOW, late_after=seconds(5))

    assert len(list(find_late(scheduled().schedule, started(6), window))) == 1


def test_run_is_not_late_when_the_catch_up_policy_staged_it() -> None:
    caught_up = started(200, staged_at=after(199))

    assert list(find_late(scheduled().schedule, caught_up, WINDOW)) == []


def test_run_is_late_when_the_catch_up_policy_restores_nothing() -> None:
    schedule = scheduled(catch_up={"mode": "none"}).schedule

    assert len(list(find_late(schedule, started(200, staged_at=after(199)), WINDOW))) == 1


def test_run_is_not_late_when_it_waits_for_an_overlap_slot() -> None:
    assert list(find_late(scheduled(overlap="queue").schedule, started(200), WINDOW)) == []


def test_backfill_run_is_never_late() -> None:
    assert list(find_late(scheduled().schedule, started(200, origin="backfill"), WINDOW)) == []


RUNNING = {"state": RunState.RUNNING, "lease_holder": "executor-1"}
RETRYING = {"state": RunState.RETRYING}


@pytest.mark.parametrize(
    ("columns", "is_stuck"),
    [
        ({}, True),
        ({"due_at": after(241)}, False),
        ({"reason": "waiting_for_overlap", "due_at": after(241)}, False),
        ({"reason": "waiting_for_overlap", "expires_at": after(200)}, True),
        ({"due_at": after(290), "expires_at": after(239)}, True),
        ({**RUNNING, "lease_until": after(239)}, True),
        ({**RUNNING, "lease_until": after(241)}, False),
        ({**RETRYING, "next_attempt_at": after(239)}, True),
        ({**RETRYING, "next_attempt_at": after(900)}, False),
        ({"state": RunState.UNRESOLVED}, False),
        ({"state": RunState.SUCCEEDED}, False),
    ],
)
def test_open_run_is_stuck_when_no_service_acted_in_time(
    columns: dict[str, Any], *, is_stuck: bool
) -> None:
    findings = list(find_stuck(scheduled().schedule, run_row(NINE, **columns), WINDOW))

    assert len(findings) == is_stuck


def test_schedule_is_stuck_when_no_ticker_reads_it() -> None:
    ticker = scheduled()
    next_at = ticker.schedule.next_at
    assert next_at is not None

    in_time = replace(WINDOW, now=next_at + seconds(60))
    too_late = replace(WINDOW, now=next_at + seconds(61))

    assert list(find_stuck_schedule(ticker.schedule, in_time)) == []
    assert len(list(find_stuck_schedule(ticker.schedule, too_late))) == 1
