"""The cursor of a page, and the states that a list can be asked for."""

from datetime import UTC, datetime, timedelta, timezone
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harebell.contract.errors import InvalidInput
from harebell.contract.types import LATEST
from harebell.dlq_inspector.model.views import STORED, DeadLetterStateFilter
from harebell.domain.page_cursor import PageCursor


@given(
    dead_at=st.datetimes(
        min_value=datetime(1970, 1, 1),  # noqa: DTZ001  # the strategy adds the zone
        max_value=LATEST.replace(tzinfo=None),
        timezones=st.sampled_from([UTC, timezone(timedelta(hours=5, minutes=30))]),
    ),
    id_=st.uuids(),
)
def test_a_cursor_reads_back_as_it_was_written(dead_at: datetime, id_: UUID) -> None:
    cursor = PageCursor(dead_at, id_)

    assert PageCursor.parse(str(cursor)) == cursor


@pytest.mark.parametrize(
    "text", ["", "x", "/", "2026-11-21T12:00:00/" + "0" * 32, "2026-11-21T12:00:00Z/x"]
)
def test_what_is_no_cursor_is_refused_with_its_field(text: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        PageCursor.parse(text)

    assert (refused.value.field, refused.value.code) == ("after", "invalid_cursor")


def test_every_state_that_can_be_asked_for_is_searched_somewhere() -> None:
    assert set(STORED) == set(DeadLetterStateFilter)


def test_a_state_that_is_none_is_refused_with_those_that_are() -> None:
    with pytest.raises(InvalidInput) as refused:
        DeadLetterStateFilter.parse("opened")

    assert refused.value.field == "state"
    assert "open, replayed, resolved, dropped, edited, all" in refused.value.reason
