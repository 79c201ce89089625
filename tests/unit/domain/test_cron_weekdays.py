"""Weekdays of cron expressions by number and name, and forms that other programs read otherwise."""

from datetime import UTC, datetime, timedelta

import pytest

from harebell.contract.errors import InvalidCron
from harebell.domain.cron import Cron

SUNDAY = datetime(2026, 11, 22, tzinfo=UTC)
NAMES = ["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"]


def days(expression: str) -> list[int]:
    """Return the days of one week after Saturday, from 0 for Sunday, on which a run is due."""
    cron, found = Cron.parse(expression), []
    moment = cron.next_after(SUNDAY - timedelta(seconds=1))
    while moment is not None and moment < SUNDAY + timedelta(days=7):
        found.append((moment - SUNDAY).days)
        moment = cron.next_after(moment)
    return found


@pytest.mark.requirement("ASK-24")
@pytest.mark.parametrize("number", range(8))
def test_weekdays_count_from_sunday_as_0_and_7(number: int) -> None:
    assert days(f"0 0 * * {number}") == [number % 7]


@pytest.mark.requirement("ASK-24")
@pytest.mark.parametrize(("number", "name"), [*enumerate(NAMES)])
def test_name_of_a_weekday_means_the_same_as_its_number(number: int, name: str) -> None:
    assert days(f"0 0 * * {name}") == days(f"0 0 * * {name.lower()}") == [number]


@pytest.mark.requirement("ASK-24")
@pytest.mark.parametrize(
    "expression",
    ["0 0 * * 5L", "0 0 * * L", "0 0 LW * *", "0 0 * * 8", "/15 * * * *", "0 0 13 * +5"],
)
def test_form_of_another_program_is_rejected_with_its_position(expression: str) -> None:
    with pytest.raises(InvalidCron) as caught:
        Cron.parse(expression)

    assert caught.value.reason
    assert caught.value.position is not None
