"""The filter and the trend of failure groups."""

import pytest

from harebell.contract.errors import InvalidInput
from harebell.dlq_inspector.model.views import parse_group_filter, trend


@pytest.mark.requirement("ASK-25")
@pytest.mark.parametrize(
    ("last_hour", "hour_before", "word"),
    [(0, 9, "quiet"), (0, 0, "quiet"), (3, 2, "rising"), (2, 2, "steady"), (1, 2, "falling")],
)
def test_trend_compares_the_last_hour_with_the_hour_before(
    last_hour: int, hour_before: int, word: str
) -> None:
    assert trend(last_hour, hour_before) == word


def test_parse_group_filter_accepts_each_state_and_all() -> None:
    assert [parse_group_filter(state) for state in ("open", "muted", "archived", "all")] == [
        "open",
        "muted",
        "archived",
        None,
    ]
    with pytest.raises(InvalidInput, match="open, muted, archived, all, not 'closed'"):
        parse_group_filter("closed")
