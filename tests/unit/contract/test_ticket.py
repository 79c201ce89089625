"""What a ticket tells before anybody has checked it."""

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
    ("work", "own", "expected"),
    [
        ({}, {}, False),
        ({"overlap": Overlap.ALLOW}, {}, False),
        ({"overlap": Overlap.SKIP}, {}, True),
        ({"overlap": Overlap.SKIP}, {"override": {"overlap": "allow"}}, False),
        ({"overlap": Overlap.QUEUE}, {"override": {"target": {}}}, True),
        ({}, {"override": {"overlap": "replace"}}, True),
        ({"limit": LIMIT}, {}, True),
        ({"limit": LIMIT}, {"reserved": True}, False),
        ({"limit": LIMIT, "overlap": Overlap.SKIP}, {"reserved": True}, True),
    ],
)
def test_what_takes_turns_or_has_a_limit_is_claimed_on_its_instant(
    work: dict[str, Any], own: dict[str, Any], *, expected: bool
) -> None:
    plain = ticket()
    one = plain.model_copy(update={"run_spec": plain.run_spec.model_copy(update=work), **own})

    assert one.claim_at_due_time is expected
    assert claim_at_due_time_of_json(orjson.loads(encode(one))) is expected


@pytest.mark.parametrize(
    "rubbish", [None, 7, [], {}, {"run_spec": 3}, {"run_spec": {}, "override": "x"}]
)
def test_of_rubbish_nothing_is_expected(rubbish: Any) -> None:
    assert claim_at_due_time_of_json(rubbish) is False
