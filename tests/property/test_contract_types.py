"""Instants, durations and ids are the same after they were written and parsed."""

from datetime import date, datetime, timedelta, timezone
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.property.contract_values import durations, instants, texts

from harebell.contract.errors import InvalidInput
from harebell.contract.ids import RunKey, run_id
from harebell.contract.types import (
    duration_text,
    instant_text,
    parse_bound,
    parse_duration,
    parse_instant,
)

offsets = st.integers(-14 * 60, 14 * 60).map(lambda minutes: timezone(timedelta(minutes=minutes)))
run_keys = st.builds(RunKey, instants, st.uuids())


@given(durations)
def test_duration_is_the_same_after_parsing(duration: timedelta) -> None:
    assert parse_duration(duration_text(duration)) == duration


@given(st.integers(0, 999), st.integers(0, 23), st.integers(0, 59), st.integers(0, 59_999))
def test_duration_is_the_same_in_both_forms(days: int, hours: int, minutes: int, ms: int) -> None:
    whole, rest = divmod(ms, 1000)
    iso = f"P{days}DT{hours}H{minutes}M{whole}.{rest:03d}S"

    expected = timedelta(days=days, hours=hours, minutes=minutes, milliseconds=ms)

    assert parse_duration(iso) == expected
    assert parse_duration(f"{days}d{hours}h{minutes}m{ms}ms") == expected


@given(instants)
def test_instant_is_the_same_after_parsing(time: datetime) -> None:
    assert parse_instant(instant_text(time)) == time
    assert parse_bound(instant_text(time)) == time


@given(instants, offsets)
def test_instant_is_the_same_with_any_offset(time: datetime, offset: timezone) -> None:
    assert parse_instant(time.astimezone(offset).isoformat()) == time


@given(st.dates(date(1970, 1, 1), date(2199, 12, 31)))
def test_bound_keeps_a_day(day: object) -> None:
    assert parse_bound(str(day)) == day


@given(run_keys)
def test_run_id_is_the_same_after_parsing(key: RunKey) -> None:
    assert RunKey.parse(str(key)) == key


@given(st.lists(run_keys, max_size=8), st.uuids())
def test_runs_of_one_schedule_sort_by_time_by_key_and_by_id(
    keys: list[RunKey], schedule: UUID
) -> None:
    of_schedule = [RunKey(key.scheduled_for, schedule) for key in keys]

    assert [str(key) for key in sorted(of_schedule)] == sorted(map(str, of_schedule))
    assert [key.scheduled_for for key in sorted(keys)] == sorted(key.scheduled_for for key in keys)


@given(instants, offsets, st.uuids())
def test_run_id_is_the_same_with_any_offset(
    time: datetime, offset: timezone, schedule: UUID
) -> None:
    assert run_id(schedule, time.astimezone(offset)) == run_id(schedule, time)


@given(texts)
def test_run_key_rejects_other_texts(text: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        RunKey.parse(text)

    assert caught.value.code == "invalid_run_id"
