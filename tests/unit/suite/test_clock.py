"""The moments of `make test-clock`, and the shift of the clock that leads to each of them."""

import re
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from tests.suite.clock import MOMENTS, Moment, remove_leftovers

NOW = datetime(2027, 5, 31, 14, 30, 15, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
ZONES_WITH_A_CHANGE = ("America/New_York", "Europe/Berlin")


def shift(moment: Moment) -> timedelta:
    match = re.fullmatch(r"([+-]\d+)s", moment.command(NOW)[-1])
    assert match is not None
    return timedelta(seconds=int(match[1]))


@pytest.mark.parametrize("moment", MOMENTS, ids=lambda each: each.name)
def test_shifted_clock_shows_the_moment(moment: Moment) -> None:
    shifted = NOW + shift(moment)

    assert (shifted.hour, shifted.minute) == (moment.hour, moment.minute)
    assert moment.date in (None, (shifted.year, shifted.month, shifted.day))


def test_moment_without_a_date_is_tomorrow() -> None:
    assert shift(Moment(name="morning", hour=8, minute=59)) == timedelta(
        hours=18, minutes=28, seconds=45
    )


def test_both_clock_changes_of_each_zone_are_a_minute_away() -> None:
    moments = [each for each in MOMENTS if each.zone in ZONES_WITH_A_CHANGE]

    assert len(moments) == 2 * len(ZONES_WITH_A_CHANGE)
    for each in moments:
        start, zone = each.start(NOW), ZoneInfo(each.zone)
        before, after = (time.astimezone(zone).utcoffset() for time in (start, start + MINUTE))
        assert before != after, each.name


@pytest.mark.unshifted
def test_command_sees_the_shifted_clock_and_the_zone_but_the_real_monotonic_clock() -> None:
    moment = next(each for each in MOMENTS if each.name == "29 February")
    show = "import time; print(time.strftime('%F %Z'), time.monotonic())"
    now = datetime.now(UTC)

    run = subprocess.run(  # noqa: S603  # Python
        (*moment.command(now), sys.executable, "-c", show),
        env=moment.environment(),
        capture_output=True,
        text=True,
        check=True,
    )

    date, zone, monotonic = run.stdout.split()
    assert (date, zone) == ("2028-02-28", "NST")  # 3.5 hours behind UTC
    own = subprocess.run(  # noqa: S603  # Python
        (sys.executable, "-c", show), capture_output=True, text=True, check=True
    )
    assert 0 <= float(own.stdout.split()[-1]) - float(monotonic) < 60


def test_shared_memory_of_a_killed_process_is_removed(tmp_path: Path) -> None:
    running = subprocess.Popen(  # fixed
        [sys.executable, "-c", "input()"],
        env={"FAKETIME_DONT_FAKE_MONOTONIC": "1"},
        stdin=subprocess.PIPE,
    )
    names = [f"faketime_shm_{running.pid}", "faketime_shm_99999999", "sem.faketime_sem_99999999"]
    for name in names:
        (tmp_path / name).touch()

    remove_leftovers(tmp_path)
    running.communicate(b"\n")

    assert [each.name for each in tmp_path.iterdir()] == names[:1]
