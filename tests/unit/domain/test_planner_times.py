"""The scheduled times of each kind of `when`."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from tests.fakes.schedules import ID, FakePlanning, definition, seconds
from tests.fakes.tickets import NINE, after

from harebell.contract.errors import InvalidCron, UnknownTimezone
from harebell.contract.types import LATEST
from harebell.domain.recurrence import RESOLUTION, next_times, recurrence_of

HOUR = timedelta(hours=1)


def stamp(text: str) -> datetime:
    return datetime.fromisoformat(text).astimezone(UTC)


@pytest.mark.requirement("S02")
@pytest.mark.parametrize(
    ("when", "expected"),
    [
        pytest.param({"now": True}, NINE, id="now"),
        pytest.param({"at": "2026-11-20T10:00:01+01:00"}, after(1), id="at"),
        pytest.param({"at": "2026-11-20T08:30:00Z"}, after(-1800), id="at, late"),
        pytest.param({"after": "5s"}, after(5), id="after"),
        pytest.param({"after": "0s"}, NINE, id="after nothing"),
    ],
)
def test_one_shot_has_one_time_and_then_completes(when: dict[str, Any], expected: datetime) -> None:
    planning = FakePlanning(definition(when))

    planning.plan_until_horizon(NINE)

    assert planning.times == [expected]
    assert planning.next_at is None


@pytest.mark.requirement("S02")
@pytest.mark.parametrize(
    "when",
    [
        {"every": "1h", "start": "2199-12-31T22:30:00Z"},
        {"every": "1h", "from": "completion", "start": "2199-12-31T22:30:00Z"},
        {"cron": "30 22,23 * * *", "timezone": "UTC"},
        {"any_of": [{"cron": "30 22,23 * * *"}, {"cron": "30 0 * * *"}], "timezone": "UTC"},
    ],
)
def test_no_time_is_later_than_the_times_that_a_message_can_contain(when: dict[str, Any]) -> None:
    recurrence = recurrence_of(definition(when), ID, NINE)

    assert recurrence.next_after(LATEST - HOUR) is not None
    assert recurrence.next_after(LATEST - RESOLUTION) is None


@pytest.mark.requirement("S04")
@pytest.mark.parametrize(
    ("rule", "first"),
    [
        ({"cron": "0 9 * * *"}, "2026-11-21T09:00+01:00"),
        ({"cron": "0 9 * * *", "timezone": "UTC"}, "2026-11-21T09:00Z"),
        ({"cron": "0 9 * * *", "timezone": "Asia/Tokyo"}, "2026-11-21T09:00+09:00"),
        ({"every": "1h", "start": "2026-11-21"}, "2026-11-21T00:00+01:00"),
        ({"cron": "0 * * * *", "start": "2026-11-22"}, "2026-11-22T00:00+01:00"),
    ],
)
def test_rule_of_any_of_has_the_time_zone_of_the_whole(rule: dict[str, Any], first: str) -> None:
    policy = definition({"any_of": [rule, {"cron": "0 0 1 1 *"}], "timezone": "Europe/Berlin"})
    stored = definition(policy.to_json()["when"])

    for each in (policy, stored):
        times = next_times(recurrence_of(each, ID, NINE), NINE, 1)
        assert times == [stamp(first)]


@pytest.mark.requirement("S02", "S38")
@pytest.mark.parametrize("when", [{"now": True}, {"at": "2026-11-20T09:00:00Z"}, {"after": "5s"}])
@pytest.mark.parametrize("catch_up", ["none", "one", "all"])
def test_late_one_shot_still_runs(when: dict[str, Any], catch_up: str) -> None:
    planning = FakePlanning(definition(when, catch_up={"mode": catch_up}))

    planning.plan_until_horizon(NINE + timedelta(days=400))

    assert len(planning.runs) == 1
    assert planning.skipped == []


@pytest.mark.requirement("S02")
def test_one_shot_is_not_staged_before_the_horizon() -> None:
    planning = FakePlanning(definition({"after": "1h"}))

    planning.plan_until_horizon(NINE)

    assert planning.runs == []
    assert planning.next_at == NINE + HOUR


@pytest.mark.requirement("S05")
@pytest.mark.parametrize(
    ("when", "first", "second"),
    [
        pytest.param({"every": "10s"}, after(10), after(20), id="from acceptance"),
        pytest.param(
            {"every": "10s", "start": "2026-11-20T08:59:55Z"}, after(5), after(15), id="from start"
        ),
        pytest.param(
            {"every": "10s", "start": "2026-11-20T09:00:00Z"}, NINE, after(10), id="at start"
        ),
        pytest.param(
            {"every": "10s", "start": "2026-11-20T09:00:03Z"}, after(3), after(13), id="later"
        ),
        pytest.param({"cron": "*/10 * * * * *"}, NINE, after(10), id="cron"),
        pytest.param(
            {"cron": "*/10 * * * * *", "start": "2026-11-20T09:00:10Z"},
            after(10),
            after(20),
            id="cron from start",
        ),
        pytest.param(
            {"cron": "30 4 * * *", "timezone": "America/New_York"},
            stamp("2026-11-20T09:30:00Z"),
            stamp("2026-11-21T09:30:00Z"),
            id="cron in its zone",
        ),
    ],
)
def test_recurring_schedule_starts_at_its_acceptance(
    when: dict[str, Any], first: datetime, second: datetime
) -> None:
    planning = FakePlanning(definition(when))

    planning.plan_until_horizon(NINE, until=second)

    assert planning.times == [first, second]


@pytest.mark.requirement("S05")
def test_interval_does_not_drift_over_ten_thousand_runs() -> None:
    planning = FakePlanning(definition({"every": "1.7s"}))

    planning.plan_until_horizon(NINE, until=NINE + 10_000 * seconds(1.7))

    assert planning.times == [NINE + k * seconds(1.7) for k in range(1, 10_001)]


@pytest.mark.requirement("S07")
@pytest.mark.parametrize("kind", [{"every": "1h"}, {"cron": "0 * * * *"}])
@pytest.mark.parametrize(
    ("bounds", "first", "last"),
    [
        pytest.param(
            {"start": "2026-11-21T12:00:00Z", "end": "2026-11-21T15:00:00Z"},
            "2026-11-21T12:00:00Z",
            "2026-11-21T15:00:00Z",
            id="instants",
        ),
        pytest.param(
            {"start": "2026-11-21", "end": "2026-11-22"},
            "2026-11-21T00:00:00Z",
            "2026-11-22T23:00:00Z",
            id="days",
        ),
        pytest.param(
            {"start": "2026-11-21", "end": "2026-11-21", "timezone": "Asia/Tokyo"},
            "2026-11-20T15:00:00Z",
            "2026-11-21T14:00:00Z",
            id="a day in its zone",
        ),
        pytest.param(
            {"start": "2027-03-28", "end": "2027-03-28", "timezone": "Europe/Berlin"},
            "2027-03-27T23:00:00Z",
            "2027-03-28T21:00:00Z",
            id="a day of 23 hours",
        ),
    ],
)
def test_bounds_are_inclusive_and_dates_use_the_time_zone(
    kind: dict[str, Any], bounds: dict[str, Any], first: str, last: str
) -> None:
    planning = FakePlanning(definition(kind | bounds))

    planning.plan_until_horizon(NINE, until=NINE + timedelta(days=365))

    assert (planning.times[0], planning.times[-1]) == (stamp(first), stamp(last))
    assert len(planning.times) == (stamp(last) - stamp(first)) / HOUR + 1
    assert planning.next_at is None


@pytest.mark.requirement("S07")
def test_end_between_two_times_keeps_the_earlier_time() -> None:
    planning = FakePlanning(definition({"every": "10s", "end": "2026-11-20T09:00:29.999Z"}))

    planning.plan_until_horizon(NINE)

    assert planning.times == [after(10), after(20)]
    assert planning.next_at is None


@pytest.mark.requirement("S07")
def test_schedule_after_its_end_has_no_time() -> None:
    planning = FakePlanning(definition({"every": "10s", "end": "2026-11-19"}))

    assert planning.next_at is None


@pytest.mark.requirement("S08")
@pytest.mark.parametrize("kind", [{"every": "1h"}, {"cron": "0 * * * *"}])
@pytest.mark.parametrize("zone", ["Mars/Olympus", "localtime", "../etc/passwd", "Europe"])
def test_unknown_time_zone_is_rejected_in_each_kind(kind: dict[str, Any], zone: str) -> None:
    wrong = definition({**kind, "timezone": zone})

    with pytest.raises(UnknownTimezone):
        recurrence_of(wrong, ID, NINE)


@pytest.mark.requirement("S04")
def test_invalid_cron_expression_is_rejected() -> None:
    wrong = definition({"cron": "61 * * * *"})

    with pytest.raises(InvalidCron):
        recurrence_of(wrong, ID, NINE)


def test_next_times_end_with_the_recurrence() -> None:
    table = recurrence_of(definition({"every": "10s", "end": "2026-11-20T09:00:20Z"}), ID, NINE)

    assert next_times(table, NINE, 1) == [after(10)]
    assert next_times(table, NINE, 5) == [after(10), after(20)]
