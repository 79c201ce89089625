"""What is told of a group of failures."""

import pytest

from harebell.contract.errors import InvalidInput
from harebell.dlq_inspector.model.views import group_filter, trend


@pytest.mark.requirement("ASK-25")
@pytest.mark.parametrize(
    ("last_hour", "hour_before", "word"),
    [(0, 9, "quiet"), (0, 0, "quiet"), (3, 2, "rising"), (2, 2, "steady"), (1, 2, "falling")],
)
def test_a_word_says_whether_it_is_still_happening(
    last_hour: int, hour_before: int, word: str
) -> None:
    assert trend(last_hour, hour_before) == word


def test_groups_of_any_state_or_of_one_can_be_asked_for() -> None:
    assert [group_filter(state) for state in ("open", "muted", "archived", "all")] == [
        *("open", "muted", "archived"),
        None,
    ]
    with pytest.raises(InvalidInput, match="open, muted, archived, all"):
        group_filter("closed")
