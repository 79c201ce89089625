"""Instants, durations, bounds and JSON: the accepted forms and the errors of other forms."""

from datetime import UTC, date, datetime, timedelta
from typing import Annotated, Any
from zoneinfo import ZoneInfo

import pytest
from pydantic import TypeAdapter, ValidationError

from harebell.contract.message import to_invalid_input
from harebell.contract.types import (
    MAX_CACHED_INSTANT,
    AttemptTimeout,
    Bound,
    CheckedJson,
    Duration,
    Instant,
    Interval,
    cached_instant,
    duration_text,
    instant_text,
    milliseconds,
)


def error_of(kind: Any, value: object) -> tuple[str, str]:
    """Return the code and the reason of the error."""
    with pytest.raises(ValidationError) as error:
        TypeAdapter(Annotated[kind, "scalar"]).validate_python(value)
    invalid = to_invalid_input(error.value.errors()[0])
    return invalid.code, invalid.reason


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("0s", 0),
        ("250ms", 0.25),
        ("1.5s", 1.5),
        ("90s", 90),
        ("1h30m", 5400),
        ("7d", 604_800),
        ("PT30S", 30),
        ("PT1H30M", 5400),
        ("P1W", 604_800),
        ("P1DT1S", 86_401),
    ],
)
def test_duration_has_a_short_form_and_an_iso_form(text: str, seconds: float) -> None:
    assert TypeAdapter(Duration).validate_python(text) == timedelta(seconds=seconds)


@pytest.mark.parametrize(
    "value",
    [
        "",
        "s",
        "5",
        "5 s",
        "-5s",
        "5S",
        "1e3s",
        "1h 30m",
        "P",
        "PT",
        "P1M",
        "30s!",
        "٣s",
        5,
        None,
        True,
    ],
)
def test_duration_rejects_other_values(value: object) -> None:
    assert error_of(Duration, value)[0] == "invalid_duration"


@pytest.mark.parametrize(
    ("kind", "text", "reason"),
    [
        (Duration, "3661d", "at most 3660 days"),
        (Duration, "999999999999d", "at most 3660 days"),
        (Interval, "999ms", "from 1s to 3660d"),
        (AttemptTimeout, "0s", "from 1ms to 1h"),
        (AttemptTimeout, "61m", "from 1ms to 1h"),
    ],
)
def test_duration_rejects_a_value_outside_its_range(kind: Any, text: str, reason: str) -> None:
    code, found = error_of(kind, text)

    assert code == "invalid_duration"
    assert reason in found


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0s"),
        (0.25, "250ms"),
        (1.5, "1500ms"),
        (90, "90s"),
        (300, "5m"),
        (7200, "2h"),
        (86_400, "1d"),
    ],
)
def test_duration_text_uses_the_largest_exact_unit(seconds: float, text: str) -> None:
    assert duration_text(timedelta(seconds=seconds)) == text


@pytest.mark.parametrize(
    ("value", "code"),
    [
        ("2026-12-25T09:00:00", "naive_instant"),
        ("2026-12-25", "naive_instant"),
        ("tomorrow", "invalid_instant"),
        ("2026-02-30T09:00:00Z", "invalid_instant"),
        ("1969-12-31T23:59:59Z", "invalid_instant"),
        ("2200-01-01T00:00:00Z", "invalid_instant"),
        ("0001-01-01T00:00:00+14:00", "invalid_instant"),
        (1_795_000_000, "invalid_instant"),
        (None, "invalid_instant"),
    ],
)
def test_instant_rejects_other_values(value: object, code: str) -> None:
    assert error_of(Instant, value)[0] == code


def test_instant_is_truncated_to_milliseconds_in_utc() -> None:
    instant = TypeAdapter(Instant).validate_python("2026-12-25T09:00:00.123999+01:00")

    assert instant == datetime(2026, 12, 25, 8, 0, 0, 123_000, tzinfo=UTC)
    assert instant_text(instant) == "2026-12-25T08:00:00.123Z"


def test_instant_text_differs_in_a_repeated_hour() -> None:
    first = datetime(2026, 11, 1, 1, 30, tzinfo=ZoneInfo("America/New_York"))
    both = [first, first.replace(fold=1)]

    assert [instant_text(each) for each in both] == ["2026-11-01T05:30:00Z", "2026-11-01T06:30:00Z"]


def test_instant_with_many_digits_is_accepted_and_not_cached() -> None:
    cached = cached_instant.cache_info().currsize
    text = f"2026-12-25T09:00:00.123{'9' * MAX_CACHED_INSTANT}Z"

    assert TypeAdapter(Instant).validate_python(text).microsecond == 123_000
    assert cached_instant.cache_info().currsize == cached


def test_bound_accepts_an_instant_and_a_day() -> None:
    bounds = TypeAdapter(Bound)

    assert bounds.validate_python("2026-12-25") == date(2026, 12, 25)
    assert bounds.validate_python("2026-12-25T00:00:00Z") == datetime(2026, 12, 25, tzinfo=UTC)
    assert error_of(Bound, "2026-02-30")[0] == "invalid_instant"
    assert error_of(Bound, "2200-01-01")[0] == "invalid_instant"


def nested(levels: int) -> Any:
    return [nested(levels - 1)] if levels else 0


def test_json_accepts_its_maximum_depth() -> None:
    assert TypeAdapter(CheckedJson).validate_python(nested(32)) == nested(32)
    assert error_of(CheckedJson, nested(33))[0] == "too_deep"


@pytest.mark.parametrize("value", ["a\0", {"\0": 1}, [{"a": ["\0"]}]])
def test_json_rejects_a_nul_character(value: object) -> None:
    assert error_of(CheckedJson, value)[0] == "nul_character"


@pytest.mark.parametrize(
    ("microseconds", "expected"),
    [(17_909, 17.9), (17_950, 17.9), (17_951, 18.0), (-40, 0.0), (1_500_000, 1500.0)],
)
def test_measured_milliseconds_have_one_decimal(microseconds: int, expected: float) -> None:
    assert milliseconds(timedelta(microseconds=microseconds)) == expected
