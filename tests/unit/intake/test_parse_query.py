"""Tests of the parser of queries: contract queries out, errors before any statement."""

import pytest

from harebell.contract.errors import InvalidInput
from harebell.contract.queries import (
    BREAKER_QUERIES,
    CALENDAR_QUERIES,
    SCHEDULE_QUERIES,
    TENANT_QUERIES,
    RunList,
)
from harebell.contract.responses import QUERY_RESPONSES
from harebell.intake.queries.parse import INTAKE_QUERIES, parse_query


def test_intake_parses_each_query_that_the_contract_routes_to_it() -> None:
    assert INTAKE_QUERIES == (
        SCHEDULE_QUERIES | BREAKER_QUERIES | CALENDAR_QUERIES | TENANT_QUERIES
    )
    assert INTAKE_QUERIES.keys() <= QUERY_RESPONSES.keys()


def test_parser_returns_the_query_of_the_contract() -> None:
    query = parse_query("run.list", b'{"key": "daily", "limit": 7}')

    assert query == RunList(key="daily", limit=7)


@pytest.mark.parametrize(
    ("verb", "body", "code", "field"),
    [
        ("run.forget", b"{}", "unknown_query", None),
        ("run.list", b"[]", "invalid", None),
        ("run.list", b'{"state": "sleeping"}', "invalid_state", "state"),
        ("schedule.list", b'{"state": "dead"}', "invalid_state", "state"),
        ("schedule.list", b'{"after": "page two"}', "invalid_cursor", "after"),
        ("run.get", b'{"run_id": "nonsense"}', "invalid_run_id", "run_id"),
    ],
)
def test_parser_rejects_an_invalid_query_with_its_field(
    verb: str, body: bytes, code: str, field: str | None
) -> None:
    with pytest.raises(InvalidInput) as caught:
        parse_query(verb, body)

    assert (caught.value.code, caught.value.field) == (code, field)
    assert caught.value.reason.endswith(".")
