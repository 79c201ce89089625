"""The early answer of intake to definitions that the tenant policy forbids."""

from datetime import UTC, datetime
from typing import Any

import orjson
import pytest
from tests.fakes.command_check import check

from harebell.contract.responses import ErrorDetail
from harebell.domain.tenant_policy import TenantPolicies
from harebell.intake.commands.check import IncomingRequest
from harebell.intake.commands.rules import IntakePolicy, TargetPolicy

NOW = datetime(2026, 11, 20, 14, tzinfo=UTC)
POLICIES = TenantPolicies.parse(
    {
        "tenants": {
            "acme": {
                "exchanges": ["orders"],
                "tasks": ["acme.*"],
                "hosts": ["api.example", "8.8.8.8"],
                "networks": [],
                "priority_max": 7,
            }
        }
    }
)
POLICY = IntakePolicy(TargetPolicy(policies=POLICIES))
TASK: dict[str, Any] = {"task": {"name": "acme.report"}}
LETTER = "5f0c1a52-7d4f-5c1b-9d80-0d3c1c3f7a11"


def error_of(key: str, body: dict[str, Any]) -> ErrorDetail | None:
    """Return the error of a command, or None if intake accepts it."""
    request = IncomingRequest(routing_key=key, body=orjson.dumps(body), message_id="m1")
    result = check(request, accepted_at=NOW, policy=POLICY)
    return result.rejections[0].response.error if result.rejections else None


@pytest.mark.requirement("P11")
@pytest.mark.parametrize(
    ("change", "field", "rule"),
    [
        ({"pool": "vip"}, "pool", "pools"),
        ({"priority": 8}, "priority", "priority_max"),
        ({"target": {"amqp": {"exchange": "other"}}}, "target.amqp.exchange", "exchanges"),
        ({"target": {"task": {"name": "harebell.sleep"}}}, "target.task.name", "tasks"),
        ({"target": {"http": {"url": "https://evil.example"}}}, "target.http.url", "hosts"),
        ({"target": {"http": {"url": "https://api.example:25"}}}, "target.http.url", "ports"),
        ({"target": {"http": {"url": "https://8.8.8.8:25"}}}, "target.http.url", "ports"),
    ],
)
def test_definition_and_patch_are_refused_with_the_field(
    change: dict[str, Any], field: str, rule: str
) -> None:
    put = error_of("acme.schedule.put", {"when": {"now": True}, "target": TASK} | change)
    patch = error_of("acme.schedule.patch", {"key": "k", "set": change})

    assert put is not None
    assert (put.code, put.field, put.rule) == ("not_allowed", field, rule)
    assert patch is not None
    assert (patch.code, patch.field, patch.rule) == ("not_allowed", f"set.{field}", rule)


@pytest.mark.requirement("P11")
@pytest.mark.parametrize(
    "target",
    [
        TASK,
        {"amqp": {"exchange": "acme.orders"}},
        {"amqp": {"exchange": "orders"}},
        {"http": {"url": "https://api.example/hook"}},
    ],
)
def test_permitted_definition_is_accepted(target: dict[str, Any]) -> None:
    body = {"when": {"now": True}, "target": target, "priority": 7}

    assert error_of("acme.schedule.put", body) is None


@pytest.mark.requirement("P3", "P11")
def test_edited_dead_letter_has_the_policy_of_its_tenant() -> None:
    foreign = {"amqp": {"exchange": "umbrella.orders"}}

    refused = error_of("acme.dlq.edit", {"id": LETTER, "target": foreign})
    permitted = error_of("acme.dlq.edit", {"id": LETTER, "target": TASK})

    assert refused is not None
    assert (refused.code, refused.field) == ("not_allowed", "target.amqp.exchange")
    assert permitted is None
