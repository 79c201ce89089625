"""Arrays for statements: what is nothing but null is not sent."""

import pytest

from harebell.storage.runs import nullable_array


@pytest.mark.parametrize(
    ("values", "sent"),
    [
        ([], []),
        ([None, None], []),
        ([None, 1, None], [None, 1, None]),
        ([0, ""], [0, ""]),
    ],
)
def test_of_nothing_but_nulls_a_column_is_empty(
    values: list[object | None], sent: list[object | None]
) -> None:
    assert nullable_array(iter(values)) == sent
