"""Runs that a pause unstages and that no recurrence returns."""

import pytest
from tests.fakes.ticker import FakeTicker
from tests.fakes.tickets import NINE, after

from harebell.domain.run_states import RunState

EVERY = {"every": "30s", "start": "2026-11-20T09:00:00Z"}


@pytest.mark.requirement("S14")
@pytest.mark.parametrize(("mode", "caught_up"), [("none", 0), ("one", 1), ("all", 2)])
@pytest.mark.parametrize("end", ["resume", "time"])
def test_run_of_an_old_recurrence_is_staged_again_after_a_pause(
    end: str, mode: str, caught_up: int
) -> None:
    """The runs are overdue, have no attempt, and belong to an old recurrence."""
    ticker = FakeTicker(NINE)
    ticker.put({**EVERY, "times": 2}, catch_up={"mode": mode})
    ticker.stage_all().wait(40)
    ticker.put({"every": "1h"}, catch_up={"mode": mode}, expected_version="any")
    assert ticker.staged_times[:2] == [NINE, after(30)]

    ticker.wait(5).send("schedule.pause", **({} if end == "resume" else {"until": str(after(300))}))
    assert ticker.staged_times == []
    ticker.wait(300)
    if end == "resume":
        ticker.send("schedule.resume")
    ticker.stage_all()

    overdue = [time for time in ticker.staged_times if time <= after(30)]
    assert overdue == [NINE, after(30)][2 - caught_up :]
    assert sum(ticker.skipped_counts.values()) == 2 - caught_up


@pytest.mark.requirement("S14")
def test_run_of_an_old_recurrence_is_staged_again_after_a_short_pause() -> None:
    ticker = FakeTicker(NINE)
    ticker.put(EVERY, catch_up={"mode": "none"})
    ticker.wait(10).put({"every": "1h"}, expected_version="any")

    ticker.wait(5).send("schedule.pause")
    ticker.wait(5).send("schedule.resume")
    ticker.run_due()

    assert ticker.times_in(RunState.SUCCEEDED) == [NINE]


def test_triggered_run_is_not_staged_again_after_a_pause() -> None:
    ticker = FakeTicker(NINE)
    ticker.put(EVERY)
    ticker.run_due()
    ticker.wait(1).send("schedule.trigger")
    ticker.wait(1).send("schedule.pause")

    ticker.wait(1).send("schedule.resume")

    assert after(1) not in ticker.staged_times
