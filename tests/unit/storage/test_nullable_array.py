"""Array parameters that contain only nulls are sent as empty arrays."""

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
def test_nullable_array_is_empty_when_all_values_are_null(
    values: list[object | None], sent: list[object | None]
) -> None:
    assert nullable_array(iter(values)) == sent
