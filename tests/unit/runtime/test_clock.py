"""The database's time, told from this process: never ahead of it, and honest about steps."""

import asyncio
from datetime import datetime, timedelta

import pytest
from tests.fakes.schedules import seconds
from tests.fakes.tickets import NINE

from harebell.contract.errors import DatabaseUnavailable
from harebell.runtime.clock import MAX_DRIFT, SAMPLES_PER_REFRESH, Clock, monotonic


class Database:
    """A clock of its own, behind a way that takes time in both directions."""

    def __init__(self, *, there: float = 0, back: float = 0) -> None:
        self.started = monotonic()
        self.offset = timedelta(0)
        self.trips = [(there, back)] * SAMPLES_PER_REFRESH
        self.asked = 0
        self.is_away = False

    def time(self) -> datetime:
        return NINE + self.offset + seconds(monotonic() - self.started)

    async def read(self) -> datetime:
        there, back = self.trips[self.asked % SAMPLES_PER_REFRESH]
        self.asked += 1
        if self.is_away:
            raise DatabaseUnavailable("away")
        await asyncio.sleep(there)
        told = self.time()
        await asyncio.sleep(back)
        return told


@pytest.mark.requirement("S56")
@pytest.mark.parametrize(("there", "back"), [(0, 0), (0.02, 0), (0, 0.02), (0.01, 0.01)])
async def test_clock_is_never_ahead_of_the_database(there: float, back: float) -> None:
    database = Database(there=there, back=back)
    clock = Clock(database.read)

    await clock.refresh()

    told = clock.now()
    assert told <= database.time()
    assert database.time() - told < seconds(there + back + 0.05)


async def test_refresh_uses_the_reading_with_the_shortest_round_trip() -> None:
    database = Database()
    database.trips = [(0, 0.03), (0, 0.03), (0, 0), (0, 0.03), (0, 0.03)]
    clock = Clock(database.read)

    await clock.refresh()

    assert database.time() - clock.now() < seconds(0.02)


async def test_monotonic_and_database_times_convert_both_ways() -> None:
    clock = Clock(Database().read)
    await clock.refresh()
    in_a_minute = clock.now() + seconds(60)

    moment = clock.to_monotonic(in_a_minute)

    assert abs(clock.from_monotonic(moment) - in_a_minute) < timedelta(milliseconds=1)
    assert 59 < moment - monotonic() <= 60


@pytest.mark.requirement("S56")
@pytest.mark.parametrize("step", [MAX_DRIFT + 0.5, -MAX_DRIFT - 0.5, 86400])
async def test_clock_follows_a_step_of_the_database_clock(step: float) -> None:
    database = Database()
    clock = Clock(database.read)
    await clock.refresh()
    before = clock.steady_for(15)

    database.offset += seconds(step)
    await clock.refresh()

    assert before
    assert not clock.steady_for(15)
    assert clock.steady_for(0)
    assert abs(database.time() - clock.now()) < seconds(1)


@pytest.mark.parametrize("drift", [0.0, MAX_DRIFT - 0.5, -MAX_DRIFT + 0.5])
async def test_small_drift_is_not_a_step(drift: float) -> None:
    database = Database()
    clock = Clock(database.read)
    await clock.refresh()

    database.offset += seconds(drift)
    await clock.refresh()

    assert clock.steady_for(15)


@pytest.mark.requirement("S91")
async def test_clock_continues_from_its_last_reading_during_an_outage() -> None:
    database = Database()
    clock = Clock(database.read)
    await clock.refresh()
    before = clock.now()

    database.is_away = True
    with pytest.raises(DatabaseUnavailable):
        await clock.refresh()

    assert before <= clock.now() <= database.time()
    assert clock.steady_for(15)


async def test_clock_without_a_reading_raises() -> None:
    clock = Clock(Database().read)

    with pytest.raises(RuntimeError):
        clock.now()
    with pytest.raises(RuntimeError):
        clock.to_monotonic(NINE)
