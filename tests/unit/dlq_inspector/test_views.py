"""The cursor of a page, and the state filter of a list of dead letters."""

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
def test_page_cursor_parses_its_own_text(dead_at: datetime, id_: UUID) -> None:
    cursor = PageCursor(dead_at, id_)

    assert PageCursor.parse(str(cursor)) == cursor


@pytest.mark.parametrize(
    "text", ["", "x", "/", "2026-11-21T12:00:00/" + "0" * 32, "2026-11-21T12:00:00Z/x"]
)
def test_page_cursor_names_its_field_if_the_text_is_invalid(text: str) -> None:
    with pytest.raises(InvalidInput) as raised:
        PageCursor.parse(text)

    assert (raised.value.field, raised.value.code) == ("after", "invalid_cursor")


def test_every_state_filter_has_stored_states() -> None:
    assert set(STORED) == set(DeadLetterStateFilter)


def test_state_filter_lists_the_states_if_the_state_is_unknown() -> None:
    with pytest.raises(InvalidInput) as raised:
        DeadLetterStateFilter.parse("opened")

    assert raised.value.field == "state"
    states = "open, replayed, resolved, discarded, superseded, all"
    assert raised.value.reason == f"The state must be one of {states}, not 'opened'."
