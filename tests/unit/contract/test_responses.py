"""Responses: one type for each query, and views that old clients can read."""

from typing import Any, get_args

import pytest

from harebell.contract.json_codec import decode, encode
from harebell.contract.message import Message, StrictMessage, parse
from harebell.contract.queries import QUERIES, BreakerList, CalendarList, ListQuery, TenantUsage
from harebell.contract.responses import QUERY_RESPONSES, Page
from harebell.contract.views import ReplayItemView, ViewResponse

ID = "6f0a7c0e-3d2b-5b53-9c1e-4d7a0f2b8e11"


def test_each_query_has_a_response() -> None:
    assert QUERY_RESPONSES.keys() == QUERIES.keys()


@pytest.mark.parametrize("verb", sorted(QUERIES))
def test_list_query_returns_a_page_and_other_query_returns_a_view(verb: str) -> None:
    is_list = issubclass(QUERIES[verb], ListQuery | BreakerList | TenantUsage | CalendarList)

    assert issubclass(QUERY_RESPONSES[verb], Page if is_list else ViewResponse)


@pytest.mark.parametrize("verb", sorted(QUERIES))
def test_response_is_lenient_in_all_its_parts(verb: str) -> None:
    assert [
        each for each in models_in(QUERY_RESPONSES[verb]) if issubclass(each, StrictMessage)
    ] == []


def test_page_keeps_its_rows_and_omits_nulls() -> None:
    page = Page[ReplayItemView](items=[ReplayItemView(position=1, id=ID, status="waiting")])

    body = encode(page)

    assert decode(body) == {"ok": True, "items": [{"position": 1, "id": ID, "status": "waiting"}]}
    assert parse(Page[ReplayItemView], decode(body)) == page


def models_in(annotation: Any) -> set[type[Message]]:
    """Return the messages in an annotation, with those in their fields."""
    if isinstance(annotation, type) and issubclass(annotation, Message):
        fields = annotation.model_fields.values()
        return {annotation}.union(*(models_in(field.annotation) for field in fields))
    return set().union(*map(models_in, get_args(annotation)))
