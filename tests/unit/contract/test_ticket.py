"""The properties of a ticket, checked and unchecked."""

from datetime import timedelta
from typing import Any

import orjson
import pytest
from tests.fakes.tickets import ticket

from harebell.contract.json_codec import encode
from harebell.contract.policy import Overlap, RateLimit
from harebell.contract.ticket import claim_at_due_time_of_json

LIMIT = RateLimit(per="target", starts=50, within=timedelta(seconds=1))


@pytest.mark.parametrize(
    ("run_spec", "fields", "expected"),
    [
        ({}, {}, False),
        ({"overlap": Overlap.ALLOW}, {}, False),
        ({"overlap": Overlap.SKIP}, {}, True),
        ({"overlap": Overlap.SKIP}, {"override": {"overlap": "allow"}}, False),
        ({"overlap": Overlap.QUEUE}, {"override": {"target": {}}}, True),
        ({}, {"override": {"overlap": "replace"}}, True),
        ({"rate_limit": LIMIT}, {}, True),
        ({"rate_limit": LIMIT}, {"reserved": True}, False),
        ({"rate_limit": LIMIT, "overlap": Overlap.SKIP}, {"reserved": True}, True),
    ],
)
def test_ticket_with_an_overlap_policy_or_a_rate_limit_is_claimed_at_its_due_time(
    run_spec: dict[str, Any], fields: dict[str, Any], *, expected: bool
) -> None:
    plain = ticket()
    changed = plain.run_spec.model_copy(update=run_spec)
    given = plain.model_copy(update={"run_spec": changed, **fields})

    assert given.claim_at_due_time is expected
    assert claim_at_due_time_of_json(orjson.loads(encode(given))) is expected


@pytest.mark.parametrize(
    "invalid", [None, 7, [], {}, {"run_spec": 3}, {"run_spec": {}, "override": "x"}]
)
def test_invalid_ticket_is_not_claimed_at_its_due_time(invalid: Any) -> None:
    assert claim_at_due_time_of_json(invalid) is False
