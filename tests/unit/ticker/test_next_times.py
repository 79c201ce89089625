"""The low-water mark of next times."""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, cast

import pytest
from tests.fakes.tickets import NINE

from harebell.contract.errors import DatabaseUnavailable
from harebell.contract.types import EARLIEST
from harebell.domain.recurrence import RESOLUTION
from harebell.ticker import next_times
from harebell.ticker.next_times import FUTURE_READ_INTERVAL, NextTimes

MINUTE = timedelta(minutes=1)
NOW = NINE - 5 * MINUTE


@dataclass(kw_only=True)
class NextTimesOfSchedules:
    """The next times in the database, and the marks from which they were read."""

    times: list[datetime] = field(default_factory=list)
    marks: list[datetime] = field(default_factory=list)
    during_read: Callable[[], None] = lambda: None
    is_available: bool = True

    async def fetchval(self, _: str, mark: datetime) -> datetime | None:
        if not self.is_available:
            raise ConnectionResetError
        self.marks.append(mark)
        found = min((each for each in self.times if each > mark), default=None)
        self.during_read()
        return found


@pytest.fixture
def passed(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Return the seconds of the monotonic clock, whose last value is the present one."""
    seconds = [1000.0]
    monkeypatch.setattr(next_times, "monotonic", lambda: seconds[-1])
    return seconds


async def earliest(times: NextTimes, database: NextTimesOfSchedules) -> datetime:
    await times.read(cast("Any", database), NOW)
    return times.known


@pytest.mark.usefixtures("passed")
async def test_read_begins_at_the_earliest_time_of_the_read_before() -> None:
    database, times = NextTimesOfSchedules(times=[NINE, NINE + MINUTE]), NextTimes()

    assert await earliest(times, database) == NINE
    assert await earliest(times, database) == NINE

    assert database.marks == [EARLIEST, NINE - RESOLUTION]
    assert times.mark == NINE - RESOLUTION


@pytest.mark.usefixtures("passed")
async def test_saved_schedule_below_the_mark_is_found() -> None:
    database, times = NextTimesOfSchedules(times=[NINE]), NextTimes()
    await earliest(times, database)

    database.times.append(NINE - MINUTE)
    times.observe([None, NINE + MINUTE, NINE - MINUTE])

    assert times.mark < NINE - MINUTE
    assert await earliest(times, database) == NINE - MINUTE


@pytest.mark.usefixtures("passed")
async def test_schedule_that_is_saved_during_a_read_keeps_the_mark_below_it() -> None:
    database, times = NextTimesOfSchedules(times=[NINE]), NextTimes()
    await earliest(times, database)
    database.times = [NINE + MINUTE]
    database.during_read = lambda: times.observe([NINE])

    assert await earliest(times, database) == NINE
    assert times.mark < NINE


@pytest.mark.usefixtures("passed")
@pytest.mark.parametrize(("saved", "is_lowered"), [(-1, True), (0, False), (1, False)])
async def test_only_a_time_before_every_known_one_lowers_the_next_time(
    saved: int, *, is_lowered: bool
) -> None:
    database, times = NextTimesOfSchedules(times=[NINE]), NextTimes()
    await earliest(times, database)

    times.observe([None, NINE + saved * MINUTE])

    assert times.known == NINE + min(saved, 0) * MINUTE
    assert times.lowered.is_set() is is_lowered


async def test_read_finds_what_another_ticker_has_saved_below_the_mark(
    passed: list[float],
) -> None:
    database, times = NextTimesOfSchedules(times=[NINE]), NextTimes()
    await earliest(times, database)
    database.times += [NOW, NOW + MINUTE]

    passed.append(passed[0] + FUTURE_READ_INTERVAL - 1)
    before = await earliest(times, database)
    passed.append(passed[0] + FUTURE_READ_INTERVAL)
    after = await earliest(times, database)

    assert (before, after) == (NINE, NOW + MINUTE)


async def test_read_of_future_times_begins_no_later_than_the_mark(passed: list[float]) -> None:
    database, times = NextTimesOfSchedules(times=[NOW - MINUTE]), NextTimes()
    await earliest(times, database)
    passed.append(passed[0] + FUTURE_READ_INTERVAL)

    assert await earliest(times, database) == NOW - MINUTE


async def test_failed_read_is_repeated_from_the_same_time(passed: list[float]) -> None:
    database, times = NextTimesOfSchedules(times=[NINE]), NextTimes()
    await earliest(times, database)
    database.times.append(NOW + MINUTE)
    passed.append(passed[0] + FUTURE_READ_INTERVAL)

    database.is_available = False
    with pytest.raises(DatabaseUnavailable):
        await earliest(times, database)
    database.is_available = True

    assert await earliest(times, database) == NOW + MINUTE
