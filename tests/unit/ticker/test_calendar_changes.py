"""A changed calendar: the runs of the schedule that the change adds and removes."""

from datetime import datetime, timedelta
from typing import Any

import pytest
from tests.fakes.schedules import ID, TASK
from tests.fakes.ticker import TENANT, FakeTicker, finish
from tests.fakes.tickets import NINE, after

from harebell.contract.calendar import CalendarPut
from harebell.contract.command_base import CommandBase
from harebell.contract.commands import SchedulePut
from harebell.ticker.commands.handlers import CommandContext, apply_command
from harebell.ticker.model.unit_of_work import UnitOfWork
from harebell.ticker.store.versions import load_calendars

# 60 to 120 s after `NINE`.
NEXT_MINUTE = {"weekly": [{"weekdays": ["fri"], "from": "09:01", "to": "09:02"}]}
FAR_DAY = {"days": ["2030-01-01"]}
EVERY_TEN_SECONDS = {"every": "10s", "start": "2026-11-20T09:00:00Z"}


class CalendarTicker(FakeTicker):
    """A ticker that also applies commands to calendars."""

    def apply(self, command: CommandBase) -> None:
        context = CommandContext(TENANT, command, ID, self.now, "tester")

        async def load(unit: UnitOfWork) -> None:
            async with self.ledger.acquire() as connection, connection.transaction():
                unit.calendars = await load_calendars(connection, [TENANT])

        unit = self.load_unit()
        finish(load(unit))
        apply_command(unit, context)
        self.save(unit)

    def put_calendar(self, content: dict[str, Any]) -> None:
        self.apply(CalendarPut.model_validate({"name": "closed", **content}))

    def staged_between(self, first: float, last: float) -> list[datetime]:
        """Return the staged times from `first` to `last` seconds after `NINE`."""
        return [time for time in self.staged_times if after(first) <= time <= after(last)]


@pytest.fixture
def ticker() -> CalendarTicker:
    """Return a ticker whose schedule has runs before and after an excluded minute."""
    ticker = CalendarTicker(NINE)
    ticker.put_calendar(NEXT_MINUTE)
    calendars = {"exclude": ["closed"]}
    put = {"key": "k", "when": EVERY_TEN_SECONDS, "target": TASK, "calendars": calendars}
    ticker.apply(SchedulePut.model_validate(put))
    ticker.stage_all().wait(50).run_due()
    ticker.stage_all()
    assert ticker.staged_between(55, 115) == []
    assert ticker.staged_between(120, 130) == [after(120), after(130)]
    return ticker


@pytest.mark.requirement("ASK-9")
def test_times_between_planned_runs_get_runs_when_a_calendar_opens(ticker: CalendarTicker) -> None:
    ticker.wait(5)
    ticker.put_calendar(FAR_DAY)
    ticker.stage_all()

    expected = [after(60) + number * timedelta(seconds=10) for number in range(8)]
    assert ticker.staged_between(55, 130) == expected


@pytest.mark.requirement("ASK-9")
def test_planned_runs_are_unstaged_when_a_calendar_closes(ticker: CalendarTicker) -> None:
    ticker.wait(5)
    ticker.put_calendar({"weekly": [{"weekdays": ["fri"], "from": "09:02", "to": "09:03"}]})
    ticker.stage_all()

    expected = [after(60) + number * timedelta(seconds=10) for number in range(6)]
    assert ticker.staged_between(55, 130) == expected
