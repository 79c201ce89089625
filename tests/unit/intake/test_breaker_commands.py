"""Commands about breakers at the door: under one name, to downstreams that there may be."""

from datetime import UTC, datetime
from typing import Any

import orjson
import pytest

from harebell.contract.errors import NotAllowed
from harebell.intake.commands.check import CheckResult, IncomingRequest, check
from harebell.intake.commands.publish import accepted_commands_message
from harebell.intake.queries.parse import parse_query

NOW = datetime(2026, 11, 20, 14, tzinfo=UTC)
OPEN = {"downstream": "http:acme.example"}


def submitted(body: Any, key: str = "harebell.breaker.open") -> CheckResult:
    return check(IncomingRequest(routing_key=key, body=orjson.dumps(body)), accepted_at=NOW)


@pytest.mark.requirement("S113")
def test_an_order_goes_to_whoever_keeps_breakers() -> None:
    checked = submitted({**OPEN, "until": "2026-11-20T16:00:00Z", "note": "a roof"})

    assert checked.rejections == ()
    assert accepted_commands_message(checked.accepted, message_id="m-1").routing_key == "breaker"


@pytest.mark.requirement("S113")
@pytest.mark.parametrize("verb", ["breaker.open", "breaker.close", "breaker.reset"])
def test_a_tenant_cannot_force_what_others_share(verb: str) -> None:
    (rejected,) = submitted(OPEN, f"acme.{verb}").rejections

    assert rejected.response.error.code == "not_a_tenants"
    assert f"harebell.{verb}" in rejected.response.error.reason


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({}, "missing_field"),
        ({"downstream": "acme.example"}, "invalid_downstream"),
        ({"downstream": "http:acme.example/hook"}, "invalid_downstream"),
        ({"downstream": "http:Acme.Example"}, "invalid_downstream"),
        ({"downstream": "http:a b"}, "invalid_downstream"),
        ({"downstream": "fax:1"}, "invalid_downstream"),
        ({"downstream": "task:"}, "invalid_downstream"),
        ({**OPEN, "until": "2026-11-20T13:00:00Z"}, "not_in_future"),
        ({**OPEN, "for": "2h"}, "unknown_field"),
    ],
)
def test_an_order_that_cannot_be_meant_is_refused(body: Any, code: str) -> None:
    (rejected,) = submitted(body).rejections

    assert rejected.response.error.code == code


@pytest.mark.requirement("S113")
def test_a_tenant_is_not_told_whom_others_call() -> None:
    with pytest.raises(NotAllowed):
        parse_query("acme", "breaker.list", b"{}", now=NOW)
