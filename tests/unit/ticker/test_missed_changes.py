"""Changes that came to nothing: missed, and what is changed behind them."""

from dataclasses import replace

import pytest
from tests.fakes.ticker import FakeTicker
from tests.fakes.tickets import NINE, after

from harebell.contract.responses import ScheduleResponse
from harebell.domain.run_states import RunState
from harebell.ticker.commands.handlers import apply_command
from harebell.ticker.model.version import VersionStatus

EVERY = {"every": "30s", "start": "2026-11-20T09:00:00Z"}
QUICK = {"every": "20s"}


@pytest.fixture
def ticking() -> FakeTicker:
    """Runs staged at nine, and every half minute."""
    ticking = FakeTicker(NINE)
    ticking.put(EVERY)
    return ticking


def carry_on(ticking: FakeTicker, until: float) -> None:
    while ticking.now < after(until):
        ticking.run_due()
        ticking.wait(5).stage_all()
    ticking.run_due()


def break_pending(ticking: FakeTicker) -> None:
    """As if the zone had gone from the zone data meanwhile."""
    assert ticking.record.pending is not None
    terms = ticking.record.pending.policy
    when = terms.when.model_copy(update={"timezone": "Nowhere/Gone"})
    broken = terms.model_copy(update={"when": when})
    pending = replace(ticking.record.pending, policy=broken)
    ticking.stored_record = ticking.record._replace(pending=pending)


@pytest.mark.requirement("S29")
def test_a_change_that_no_ticker_came_to_in_time_is_missed_and_the_old_goes_on(
    ticking: FakeTicker,
) -> None:
    ticking.wait(10).send("schedule.patch", set={"priority": 8}, effective_at=after(300))
    asked = ticking.context_of(
        "schedule.patch", {"set": {"when": QUICK}, "effective_at": after(60)}
    )
    ticking.run_due()
    ticking.wait(55).stage_all()
    ticking.run_due()
    book = ticking.load_unit()

    answer = apply_command(book, asked._replace(applied_at=ticking.now))
    ticking.save(book)
    carry_on(ticking, 200)

    assert isinstance(answer, ScheduleResponse)
    assert (answer.status, answer.version, answer.pending_version) == ("missed", 1, 2)
    assert ticking.version_statuses[3] == (VersionStatus.MISSED, "came 0:00:05 after its time")
    assert ticking.times_in(RunState.SUCCEEDED) == [after(30 * k) for k in range(7)]
    assert ticking.version_statuses[2] == (VersionStatus.PENDING, None)


@pytest.mark.requirement("S30")
@pytest.mark.parametrize("how", ["rejected", "cancelled", "missed"])
def test_a_change_behind_one_that_came_to_nothing_has_a_number_of_its_own(
    ticking: FakeTicker, how: str
) -> None:
    if how == "missed":
        asked = ticking.context_of(
            "schedule.patch", {"set": {"priority": 8}, "effective_at": after(1)}
        )
        book = ticking.wait(2).load_unit()
        apply_command(book, asked._replace(applied_at=ticking.now))
        ticking.save(book)
    else:
        ticking.send("schedule.patch", set={"priority": 8}, effective_at=after(40))
    if how == "cancelled":
        ticking.wait(1).send("schedule.cancel")
    if how == "rejected":
        break_pending(ticking)
        carry_on(ticking, 50)

    answer = ticking.wait(1).put(EVERY, expected_version="any", priority=3)

    assert isinstance(answer, ScheduleResponse)
    assert (answer.version, list(ticking.version_statuses)) == (3, [1, 2, 3])
