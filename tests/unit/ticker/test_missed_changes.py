"""Changes that are missed, and the numbers of later versions."""

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
def ticker() -> FakeTicker:
    """Return a schedule with staged runs at nine and every half minute."""
    ticker = FakeTicker(NINE)
    ticker.put(EVERY)
    return ticker


def run_until(ticker: FakeTicker, until: float) -> None:
    while ticker.now < after(until):
        ticker.run_due()
        ticker.wait(5).stage_all()
    ticker.run_due()


def break_pending_version(ticker: FakeTicker) -> None:
    """Give the pending version a time zone that the time zone database does not contain."""
    definition = ticker.record.pending[0].definition
    when = definition.when.model_copy(update={"timezone": "Nowhere/Gone"})
    ticker.store_definition(2, definition.model_copy(update={"when": when}))


@pytest.mark.requirement("S29")
def test_change_that_is_applied_after_its_effective_time_is_missed_and_the_old_version_continues(
    ticker: FakeTicker,
) -> None:
    ticker.wait(10).send("schedule.patch", set={"priority": 8}, effective_at=after(300))
    context = ticker.context_of(
        "schedule.patch", {"set": {"when": QUICK}, "effective_at": after(60)}
    )
    ticker.run_due()
    ticker.wait(55).stage_all()
    ticker.run_due()
    unit = ticker.load_unit()

    response = apply_command(unit, context._replace(applied_at=ticker.now))
    ticker.save(unit)
    run_until(ticker, 200)

    assert isinstance(response, ScheduleResponse)
    assert (response.status, response.version, response.pending_version) == ("change_missed", 1, 2)
    assert ticker.version_statuses[3] == (
        VersionStatus.MISSED,
        "applied 0:00:05 after its effective time",
    )
    assert ticker.times_in(RunState.SUCCEEDED) == [after(30 * k) for k in range(7)]
    assert ticker.version_statuses[2] == (VersionStatus.PENDING, None)


@pytest.mark.requirement("S30")
@pytest.mark.parametrize("end", ["failed", "cancelled", "missed"])
def test_version_number_is_never_used_again_after_a_version_that_did_not_become_active(
    ticker: FakeTicker, end: str
) -> None:
    if end == "missed":
        context = ticker.context_of(
            "schedule.patch", {"set": {"priority": 8}, "effective_at": after(1)}
        )
        unit = ticker.wait(2).load_unit()
        apply_command(unit, context._replace(applied_at=ticker.now))
        ticker.save(unit)
    else:
        ticker.send("schedule.patch", set={"priority": 8}, effective_at=after(40))
    if end == "cancelled":
        ticker.wait(1).send("schedule.cancel")
    if end == "failed":
        break_pending_version(ticker)
        run_until(ticker, 50)

    response = ticker.wait(1).put(EVERY, expected_version="any", priority=3, revive=True)

    assert isinstance(response, ScheduleResponse)
    assert (response.version, list(ticker.version_statuses)) == (3, [1, 2, 3])
