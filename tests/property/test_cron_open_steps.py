"""A step after one value, compared with an independent expansion and with croniter."""

from datetime import UTC, datetime, timedelta
from typing import Final

import pytest
from croniter import croniter
from hypothesis import given
from hypothesis import strategies as st

from harebell.domain.cron import Cron
from harebell.domain.cron.parser import open_steps, parse

LOWEST: Final = {"minute": 0, "hour": 0, "day": 1, "month": 1, "weekday": 0}
HIGHEST: Final = {"minute": 59, "hour": 23, "day": 31, "month": 12, "weekday": 6}
FIELDS: Final = tuple(LOWEST)


def expanded(item: str, field: str) -> set[int]:
    """Return the values of `a/n`, `a-b/n`, `*/n` or `a`, by a test of each value of the field."""
    base, _, step = item.partition("/")
    low, dash, high = base.partition("-")
    if base == "*":
        low, high = str(LOWEST[field]), str(HIGHEST[field])
    elif not dash:
        high = str(HIGHEST[field]) if step else low
    return {
        value
        for value in range(LOWEST[field], HIGHEST[field] + 1)
        if int(low) <= value <= int(high) and (value - int(low)) % int(step or 1) == 0
    }


@st.composite
def items(draw: st.DrawFn, field: str) -> str:
    first = draw(st.integers(LOWEST[field], HIGHEST[field]))
    last = draw(st.integers(first, HIGHEST[field]))
    step = draw(st.integers(1, HIGHEST[field] - LOWEST[field] + 1))
    forms = [
        f"{first}/{step}",
        f"{first}/{step}",
        f"{first}-{last}/{step}",
        f"*/{step}",
        f"{first}",
    ]
    return draw(st.sampled_from(forms))


def lists(field: str) -> st.SearchStrategy[str]:
    return st.lists(items(field), min_size=1, max_size=3).map(",".join)


@pytest.mark.requirement("S04")
@given(
    minute=lists("minute"), hour=lists("hour"), month=lists("month"), after=st.integers(0, 8_760)
)
def test_times_are_those_of_the_expanded_lists(
    minute: str, hour: str, month: str, after: int
) -> None:
    start = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(hours=after)

    found = Cron.parse(f"{minute} {hour} * {month} *").next_after(start)

    minutes, hours, months = (
        set().union(*(expanded(item, field) for item in text.split(",")))
        for text, field in zip((minute, hour, month), ("minute", "hour", "month"), strict=True)
    )
    day = start.replace(hour=0, minute=0)
    while day.month not in months:
        day += timedelta(days=1)
    times = [
        each
        for each in (day + timedelta(minutes=n) for n in range(2 * 24 * 60))
        if each > start and each.month in months and each.hour in hours and each.minute in minutes
    ]
    if times:
        assert found == times[0]
    else:  # the month ends within two days
        assert found is not None
        assert found > day + timedelta(days=1)
        assert found.month in months
        assert (found.hour, found.minute) == (min(hours), min(minutes))


@pytest.mark.requirement("S04")
@pytest.mark.parametrize(("place", "field"), [*enumerate(FIELDS)])
def test_every_value_and_step_expands_alike(place: int, field: str) -> None:
    """Compare all `a/n` of a field with the expansion, and with croniter."""
    for first in range(LOWEST[field], HIGHEST[field] + 1):
        for step in range(1, HIGHEST[field] - LOWEST[field] + 2):
            words = ["0", "0", "*", "*", "*"]
            words[place] = f"{first}/{step}"
            text = " ".join(words)
            expected = expanded(words[place], field)

            column = parse(text, None).text.split()[place]
            (meaning,) = open_steps(text)
            words[place] = meaning.meaning

            values = set(range(LOWEST[field], HIGHEST[field] + 1))
            parsed = values if column == "*" else set(map(int, column.split(",")))
            by_croniter = croniter.expand(text)[0][place]
            assert parsed == expected, text
            assert (values if by_croniter == ["*"] else set(by_croniter)) == expected, text
            assert parse(" ".join(words), None) == parse(text, None), text
