"""The field `not_after` of the catch-up policy: the time of day that ends the catch-up."""

from datetime import UTC, datetime
from typing import Any

import pytest
from tests.fakes.schedules import FakePlanning, definition

AT_TWO = {"cron": "0 2 * * *", "timezone": "Europe/Berlin"}
ACCEPTED_AT = datetime(2026, 11, 19, 12, tzinfo=UTC)
MISSED = datetime(2026, 11, 20, 1, tzinfo=UTC)  # 02:00 in Berlin


def planned(when: dict[str, Any], now: datetime, **policy: Any) -> FakePlanning:
    catch_up = {"mode": "all", "window": "24h", **policy}
    return FakePlanning(definition(when, catch_up=catch_up), ACCEPTED_AT).plan_until_horizon(now)


@pytest.mark.requirement("ASK-6")
@pytest.mark.parametrize(
    ("hour", "minute", "runs"),
    [(1, 30, [MISSED]), (4, 59, [MISSED]), (5, 0, []), (12, 0, []), (23, 30, [])],
)
def test_nightly_run_is_caught_up_only_before_not_after_in_its_time_zone(
    hour: int, minute: int, runs: list[datetime]
) -> None:
    now = datetime(2026, 11, 20, hour, minute, tzinfo=UTC)

    planning = planned(AT_TWO, now, not_after="06:00")

    assert planning.times == runs
    assert planning.skipped_count == 1 - len(runs)


@pytest.mark.requirement("ASK-6")
def test_not_after_that_is_earlier_than_the_missed_time_ends_the_catch_up_on_the_next_day() -> None:
    evening = {"cron": "0 22 * * *"}
    before, after = (datetime(2026, 11, 20, hour, tzinfo=UTC) for hour in (1, 3))

    assert planned(evening, before, not_after="02:00").times == [
        datetime(2026, 11, 19, 22, tzinfo=UTC)
    ]
    assert planned(evening, after, not_after="02:00").times == []
