"""What began late and what is stuck, by one bound; and what is neither."""

from dataclasses import replace
from typing import Any

import pytest
from tests.fakes.audit import Audited, a_run
from tests.fakes.schedules import seconds
from tests.fakes.tickets import NINE, after

from harebell.audit.model.lateness import find_late, find_stuck, find_stuck_schedule
from harebell.audit.model.records import Attempt, Run, Window
from harebell.domain.run_states import RunState

EVERY = {"every": "20s", "start": "2026-11-20T09:00:00Z"}
NOW = after(300)
WINDOW = Window(NINE, NOW, NOW)


def scheduled(when: dict[str, Any] = EVERY, **policies: Any) -> Audited:
    ticking = Audited(NINE)
    ticking.put(when, **policies)
    return ticking


def begun(at: float, **columns: Any) -> Run:
    """Its first attempt."""
    return a_run(NINE, attempts=(Attempt(1, 1, "succeeded", after(at)),), **columns)


def test_a_run_that_began_after_the_bound_is_late() -> None:
    schedule = scheduled().schedule

    assert len(list(find_late(schedule, begun(61), WINDOW))) == 1
    assert list(find_late(schedule, begun(60), WINDOW)) == []


def test_a_run_that_still_runs_is_judged_by_its_start() -> None:
    run = a_run(NINE, state=RunState.RUNNING, started_at=after(61))

    assert len(list(find_late(scheduled().schedule, run, WINDOW))) == 1


def test_the_bound_can_be_told() -> None:
    window = replace(WINDOW, late_after=seconds(5))

    assert len(list(find_late(scheduled().schedule, begun(6), window))) == 1


def test_what_was_made_up_for_is_not_late() -> None:
    made_up = begun(200, staged_at=after(199))

    assert list(find_late(scheduled().schedule, made_up, WINDOW)) == []


def test_what_nothing_makes_up_for_is_late_however_late_it_was_staged() -> None:
    schedule = scheduled(catch_up={"mode": "none"}).schedule

    assert len(list(find_late(schedule, begun(200, staged_at=after(199)), WINDOW))) == 1


def test_a_run_that_waits_its_turn_is_not_late() -> None:
    assert list(find_late(scheduled(overlap="queue").schedule, begun(200), WINDOW)) == []


def test_what_is_backfilled_is_not_late() -> None:
    assert list(find_late(scheduled().schedule, begun(200, origin="backfill"), WINDOW)) == []


RUNNING = {"state": RunState.RUNNING, "lease_holder": "executor-1"}
RETRYING = {"state": RunState.RETRYING}


@pytest.mark.parametrize(
    ("columns", "is_stuck"),
    [
        ({}, True),
        ({"due_at": after(241)}, False),
        ({"reason": "waiting"}, False),
        ({"reason": "waiting", "expires_at": after(200)}, True),
        ({"due_at": after(290), "expires_at": after(239)}, True),
        ({**RUNNING, "lease_until": after(239)}, True),
        ({**RUNNING, "lease_until": after(241)}, False),
        ({**RETRYING, "next_attempt_at": after(239)}, True),
        ({**RETRYING, "next_attempt_at": after(900)}, False),
        ({"state": RunState.UNRESOLVED}, False),
        ({"state": RunState.SUCCEEDED}, False),
    ],
)
def test_what_ought_to_have_gone_on_is_stuck(columns: dict[str, Any], *, is_stuck: bool) -> None:
    found = list(find_stuck(scheduled().schedule, a_run(NINE, **columns), WINDOW))

    assert len(found) == is_stuck


def test_a_schedule_that_no_ticker_looks_at_is_stuck() -> None:
    ticking = scheduled()
    assert ticking.record.next_at is not None

    in_time = Window(NINE, NOW, ticking.record.next_at + seconds(60))
    too_late = Window(NINE, NOW, ticking.record.next_at + seconds(61))

    assert list(find_stuck_schedule(ticking.schedule, in_time)) == []
    assert len(list(find_stuck_schedule(ticking.schedule, too_late))) == 1
