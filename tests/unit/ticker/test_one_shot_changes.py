"""One-shots and effective times: no run starts before its version is in force."""

import pytest
from tests.fakes.ticker import FakeTicker
from tests.fakes.tickets import NINE, after

from harebell.contract.errors import Conflict
from harebell.domain.run_states import RunState


def run_until(ticker: FakeTicker, seconds: float) -> None:
    while ticker.now < after(seconds):
        ticker.run_due()
        ticker.wait(5).stage_all()
    ticker.run_due()


@pytest.mark.requirement("S28")
def test_change_to_a_one_shot_before_its_effective_time_is_rejected_and_changes_nothing() -> None:
    """The run would otherwise start at once, before the change is in force."""
    ticker = FakeTicker(NINE)
    ticker.put({"every": "30s"})

    with pytest.raises(Conflict) as error:
        ticker.put({"at": after(5)}, effective_at=after(100), expected_version="any")

    assert (error.value.code, error.value.field) == ("after_its_instant", "effective_at")
    assert ticker.record.pending == ()
    ticker.put({"at": after(100)}, effective_at=after(100), expected_version="any")
    run_until(ticker, 105)
    assert ticker.times_in(RunState.SUCCEEDED)[-1] == after(100)


@pytest.mark.requirement("S28")
def test_change_of_other_fields_may_have_an_effective_time_after_the_one_shot() -> None:
    ticker = FakeTicker(NINE)
    ticker.put({"at": after(5)})

    ticker.wait(1).send("schedule.patch", set={"priority": 9}, effective_at=after(100))
    run_until(ticker, 105)

    assert ticker.times_in(RunState.SUCCEEDED) == [after(5)]


@pytest.mark.requirement("S28")
def test_put_rejects_a_one_shot_before_its_effective_time() -> None:
    ticker = FakeTicker(NINE)

    with pytest.raises(Conflict):
        ticker.put({"at": after(5)}, effective_at=after(100))

    assert ticker.stored_record is None
