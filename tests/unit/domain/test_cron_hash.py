"""`H`: each schedule its own time, the same for ever, and all of them spread evenly."""

from collections import Counter
from datetime import UTC, datetime
from uuid import NAMESPACE_URL, UUID, uuid5

import pytest

from harebell.domain.cron import Cron

IDS = [uuid5(NAMESPACE_URL, f"https://acme.example/{n}") for n in range(10_000)]
START = datetime(2026, 11, 1, tzinfo=UTC)  # a Sunday


def first(expression: str, schedule_id: UUID | None) -> datetime:
    following = Cron.parse(expression, hash_id=schedule_id).next_after(START)
    assert following is not None
    return following


def of_one_day(expression: str, schedule_id: UUID) -> list[datetime]:
    cron, moment, found = Cron.parse(expression, hash_id=schedule_id), START, []
    while (following := cron.next_after(moment)) and following.date() == START.date():
        found.append(moment := following)
    return found


@pytest.mark.requirement("S13", "ASK-13")
def test_hashed_minutes_of_ten_thousand_schedules_are_even_within_30_percent() -> None:
    minutes = Counter(first("H * * * *", schedule_id).minute for schedule_id in IDS)

    even = len(IDS) / 60
    assert len(minutes) == 60
    assert min(minutes.values()) >= 0.7 * even
    assert max(minutes.values()) <= 1.3 * even


@pytest.mark.requirement("S13")
def test_hashed_hour_and_minute_are_independent() -> None:
    slots = {(at.hour, at.minute) for at in (first("H H * * *", one) for one in IDS[:2_500])}

    assert len(slots) > 1_100  # of 1,440: 2,500 independent values leave about 250 of them unused


@pytest.mark.requirement("S13")
def test_hashed_step_starts_at_a_value_of_the_schedule() -> None:
    starts = set()
    for schedule_id in IDS[:200]:
        minutes = [at.minute for at in of_one_day("H/15 6 * * *", schedule_id)]
        starts.add(minutes[0])
        assert minutes == [minutes[0] + step for step in (0, 15, 30, 45)]

    assert starts == set(range(15))


@pytest.mark.requirement("S13")
def test_hashed_range_uses_every_value_and_no_other() -> None:
    hours = {first("0 H(9-16) * * *", schedule_id).hour for schedule_id in IDS[:500]}

    assert hours == set(range(9, 17))


@pytest.mark.requirement("S13")
def test_hashed_step_stays_within_its_range() -> None:
    for schedule_id in IDS[:100]:
        minutes = [at.minute for at in of_one_day("H(10-40)/10 6 * * *", schedule_id)]

        assert 10 <= minutes[0] < 20
        assert minutes == list(range(minutes[0], 41, 10))


@pytest.mark.requirement("S13")
def test_hashed_day_exists_in_every_month() -> None:
    days = {first("0 0 H * *", schedule_id).day for schedule_id in IDS[:1_000]}

    assert days == set(range(1, 29))


@pytest.mark.requirement("S13")
@pytest.mark.parametrize(
    ("expression", "unit", "size"),
    [("H 0 0 * * *", "second", 60), ("0 0 1 H *", "month", 12), ("0 0 * * H", "day", 7)],
)
def test_every_field_accepts_a_hash(expression: str, unit: str, size: int) -> None:
    drawn = {getattr(first(expression, schedule_id), unit) for schedule_id in IDS[:500]}

    assert len(drawn) == size


@pytest.mark.requirement("S13")
def test_hashed_time_of_a_schedule_is_constant() -> None:
    # Written down, because a stored schedule must not move with an upgrade.
    schedule_id = UUID("6ba7b810-9dad-11d1-80b4-00c04fd430c8")

    assert first("H H * * *", schedule_id) == first("h h * * *", schedule_id)
    assert first("H H * * *", schedule_id).strftime("%H:%M") == "10:11"


@pytest.mark.requirement("S13")
def test_hash_without_an_id_uses_the_nil_id() -> None:
    assert first("H H * * *", None) == first("H H * * *", UUID(int=0))
