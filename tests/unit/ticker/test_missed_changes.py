"""Changes that came to nothing: missed, and what is changed behind them."""

from dataclasses import replace

import pytest
from tests.fakes.ticker import Ticking
from tests.fakes.tickets import NINE, after

from harebell.contract.responses import ScheduleResponse
from harebell.domain.run_states import RunState
from harebell.ticker.commands.handlers import apply_command
from harebell.ticker.model.version import VersionStatus

EVERY = {"every": "30s", "start": "2026-11-20T09:00:00Z"}
QUICK = {"every": "20s"}


@pytest.fixture
def ticking() -> Ticking:
    """Runs staged at nine, and every half minute."""
    ticking = Ticking(NINE)
    ticking.put(EVERY)
    return ticking


def carry_on(ticking: Ticking, until: float) -> None:
    while ticking.now < after(until):
        ticking.run_due()
        ticking.wait(5).look()
    ticking.run_due()


def break_pending(ticking: Ticking) -> None:
    """As if the zone had gone from the zone data meanwhile."""
    assert ticking.kept.pending is not None
    terms = ticking.kept.pending.policy
    when = terms.when.model_copy(update={"timezone": "Nowhere/Gone"})
    broken = terms.model_copy(update={"when": when})
    pending = replace(ticking.kept.pending, policy=broken)
    ticking.entry = ticking.kept._replace(pending=pending)


@pytest.mark.requirement("S29")
def test_a_change_that_no_ticker_came_to_in_time_is_missed_and_the_old_goes_on(
    ticking: Ticking,
) -> None:
    ticking.wait(10).ask("schedule.patch", set={"priority": 8}, effective_at=after(300))
    asked = ticking.asked("schedule.patch", {"set": {"when": QUICK}, "effective_at": after(60)})
    ticking.run_due()
    ticking.wait(55).look()
    ticking.run_due()
    book = ticking.book()

    answer = apply_command(book, asked._replace(applied_at=ticking.now))
    ticking.save(book)
    carry_on(ticking, 200)

    assert isinstance(answer, ScheduleResponse)
    assert (answer.status, answer.version, answer.pending_version) == ("missed", 1, 2)
    assert ticking.fates[3] == (VersionStatus.MISSED, "came 0:00:05 after its time")
    assert ticking.having(RunState.SUCCEEDED) == [after(30 * k) for k in range(7)]
    assert ticking.fates[2] == (VersionStatus.PENDING, None)


@pytest.mark.requirement("S30")
@pytest.mark.parametrize("how", ["rejected", "cancelled", "missed"])
def test_a_change_behind_one_that_came_to_nothing_has_a_number_of_its_own(
    ticking: Ticking, how: str
) -> None:
    if how == "missed":
        asked = ticking.asked("schedule.patch", {"set": {"priority": 8}, "effective_at": after(1)})
        book = ticking.wait(2).book()
        apply_command(book, asked._replace(applied_at=ticking.now))
        ticking.save(book)
    else:
        ticking.ask("schedule.patch", set={"priority": 8}, effective_at=after(40))
    if how == "cancelled":
        ticking.wait(1).ask("schedule.cancel")
    if how == "rejected":
        break_pending(ticking)
        carry_on(ticking, 50)

    answer = ticking.wait(1).put(EVERY, expected_version="any", priority=3)

    assert isinstance(answer, ScheduleResponse)
    assert (answer.version, list(ticking.fates)) == (3, [1, 2, 3])
