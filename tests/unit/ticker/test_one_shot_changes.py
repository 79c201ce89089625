"""One-shots and changes at a stated time: no run begins before the change that owes it."""

import pytest
from tests.fakes.ticker import FakeTicker
from tests.fakes.tickets import NINE, after

from harebell.contract.errors import Conflict
from harebell.domain.run_states import RunState


def run_until(ticking: FakeTicker, seconds: float) -> None:
    while ticking.now < after(seconds):
        ticking.run_due()
        ticking.wait(5).stage_all()
    ticking.run_due()


@pytest.mark.requirement("S28")
def test_a_one_shot_for_before_the_change_is_refused_and_all_stays() -> None:
    """It would run at once, before the change is in force."""
    ticking = FakeTicker(NINE)
    ticking.put({"every": "30s"})

    with pytest.raises(Conflict) as refused:
        ticking.put({"at": after(5)}, effective_at=after(100), expected_version="any")

    assert (refused.value.code, refused.value.field) == ("after_its_instant", "effective_at")
    assert ticking.record.pending is None
    ticking.put({"at": after(100)}, effective_at=after(100), expected_version="any")
    run_until(ticking, 105)
    assert ticking.times_in(RunState.SUCCEEDED)[-1] == after(100)


@pytest.mark.requirement("S28")
def test_a_change_of_other_fields_may_come_after_the_instant_of_a_one_shot() -> None:
    ticking = FakeTicker(NINE)
    ticking.put({"at": after(5)})

    ticking.wait(1).send("schedule.patch", set={"priority": 9}, effective_at=after(100))
    run_until(ticking, 105)

    assert ticking.times_in(RunState.SUCCEEDED) == [after(5)]


@pytest.mark.requirement("S28")
def test_a_one_shot_is_not_created_for_after_its_instant() -> None:
    ticking = FakeTicker(NINE)

    with pytest.raises(Conflict):
        ticking.put({"at": after(5)}, effective_at=after(100))

    assert ticking.stored_record is None
