"""Which messages are of a version that is known here."""

import pytest

from harebell.contract.amqp_names import check_version
from harebell.contract.errors import InvalidInput


@pytest.mark.parametrize(
    "type_", [None, "", "harebell.schedule.put.v1", "acme.report.v9", "harebell.report", "text"]
)
def test_what_says_nothing_of_ours_is_of_the_first(type_: str | None) -> None:
    check_version(type_)


@pytest.mark.parametrize("type_", ["harebell.schedule.put.v9", "harebell.ticket.bundle.v2"])
def test_a_later_version_is_told_with_its_name(type_: str) -> None:
    with pytest.raises(InvalidInput, match=type_) as told:
        check_version(type_)

    assert (told.value.code, told.value.field) == ("unknown_version", "type")
