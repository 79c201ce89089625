"""A pause takes back runs that no timetable owes any more: what of them is owed behind it."""

import pytest
from tests.fakes.ticker import FakeTicker
from tests.fakes.tickets import NINE, after

from harebell.domain.run_states import RunState

EVERY = {"every": "30s", "start": "2026-11-20T09:00:00Z"}


@pytest.mark.requirement("S14")
@pytest.mark.parametrize(("mode", "made_up"), [("none", 0), ("one", 1), ("all", 2)])
@pytest.mark.parametrize("by", ["resume", "itself"])
def test_what_a_change_of_times_had_carried_over_is_owed_again_after_a_pause(
    by: str, mode: str, made_up: int
) -> None:
    """Overdue and not begun, of no timetable's any more: catch-up decides as about any other."""
    ticking = FakeTicker(NINE)
    ticking.put({**EVERY, "times": 2}, catch_up={"mode": mode})
    ticking.stage_all().wait(40)
    ticking.put({"every": "1h"}, catch_up={"mode": mode}, expected_version="any")
    assert ticking.staged_times[:2] == [NINE, after(30)]

    ticking.wait(5).send("schedule.pause", **({} if by == "resume" else {"until": str(after(300))}))
    assert ticking.staged_times == []
    ticking.wait(300)
    if by == "resume":
        ticking.send("schedule.resume")
    ticking.stage_all()

    overdue = [moment for moment in ticking.staged_times if moment <= after(30)]
    assert overdue == [NINE, after(30)][2 - made_up :]
    assert sum(ticking.skipped_counts.values()) == 2 - made_up


@pytest.mark.requirement("S14")
def test_what_a_change_of_times_had_carried_over_is_owed_again_after_a_short_pause() -> None:
    ticking = FakeTicker(NINE)
    ticking.put(EVERY, catch_up={"mode": "none"})
    ticking.wait(10).put({"every": "1h"}, expected_version="any")

    ticking.wait(5).send("schedule.pause")
    ticking.wait(5).send("schedule.resume")
    ticking.run_due()

    assert ticking.times_in(RunState.SUCCEEDED) == [NINE]


def test_a_run_that_a_user_had_asked_for_is_not_owed_again_after_a_pause() -> None:
    ticking = FakeTicker(NINE)
    ticking.put(EVERY)
    ticking.run_due()
    ticking.wait(1).send("schedule.trigger")
    ticking.wait(1).send("schedule.pause")

    ticking.wait(1).send("schedule.resume")

    assert after(1) not in ticking.staged_times
