"""Tests of breaker commands in intake: only the operations tenant, only valid downstreams."""

from datetime import UTC, datetime
from typing import Any

import orjson
import pytest
from tests.fakes.command_check import check

from harebell.contract.errors import NotAllowed
from harebell.intake.commands.check import CheckResult, IncomingRequest, check_operations
from harebell.intake.commands.publish import accepted_commands_message

NOW = datetime(2026, 11, 20, 14, tzinfo=UTC)
OPEN = {"downstream": "acme.example:443"}


def checked(body: Any, routing_key: str = "harebell.breaker.open") -> CheckResult:
    request = IncomingRequest(routing_key=routing_key, body=orjson.dumps(body))
    return check(request, accepted_at=NOW)


@pytest.mark.requirement("S113")
def test_breaker_command_is_published_for_the_ticker_that_records_breakers() -> None:
    result = checked({**OPEN, "until": "2026-11-20T16:00:00Z", "note": "maintenance"})

    assert result.rejections == ()
    message = accepted_commands_message(result.accepted, message_id="m-1")
    assert message.routing_key == "breaker"


@pytest.mark.requirement("S113")
@pytest.mark.parametrize("verb", ["breaker.open", "breaker.close", "breaker.reset"])
def test_breaker_command_is_rejected_when_a_tenant_publishes_it(verb: str) -> None:
    (rejected,) = checked(OPEN, f"acme.{verb}").rejections

    assert rejected.response.error.code == "not_a_tenants"
    assert f"harebell.{verb}" in rejected.response.error.reason


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({}, "missing_field"),
        ({"downstream": "acme.example"}, "invalid_downstream"),
        ({"downstream": "http:acme.example"}, "invalid_downstream"),  # either port
        ({"downstream": "acme.example:443/hook"}, "invalid_downstream"),
        ({"downstream": "Acme.Example:443"}, "invalid_downstream"),
        ({"downstream": "a b:443"}, "invalid_downstream"),
        ({"downstream": "fax:number"}, "invalid_downstream"),
        ({"downstream": "task:"}, "invalid_downstream"),
        ({**OPEN, "until": "2026-11-20T13:00:00Z"}, "not_in_future"),
        ({**OPEN, "for": "2h"}, "unknown_field"),
    ],
)
def test_breaker_command_is_rejected_when_a_field_is_invalid(body: Any, code: str) -> None:
    (rejected,) = checked(body).rejections

    assert rejected.response.error.code == code


@pytest.mark.requirement("S113")
def test_breaker_command_is_rejected_when_a_tenant_gives_it() -> None:
    with pytest.raises(NotAllowed):
        check_operations("acme", "breaker.open")


@pytest.mark.requirement("P5")
def test_breaker_command_may_name_the_tenant_that_it_concerns() -> None:
    (accepted,) = checked({**OPEN, "for_tenant": "acme"}).accepted.items
    (rejected,) = checked({**OPEN, "for_tenant": "Acme Inc"}).rejections

    assert accepted.body is not None
    assert accepted.body["for_tenant"] == "acme"
    assert rejected.response.error.field == "for_tenant"
