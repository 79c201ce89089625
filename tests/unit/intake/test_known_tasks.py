"""Tests of task names in intake, with and without the setting of the known tasks."""

from datetime import UTC, datetime
from typing import Any

import orjson
import pytest
from tests.fakes.command_check import check

from harebell.contract.responses import ErrorDetail
from harebell.intake.commands.check import IncomingRequest
from harebell.intake.commands.rules import IntakePolicy, TargetPolicy

NOW = datetime(2026, 11, 20, 14, tzinfo=UTC)
KNOWN = IntakePolicy(TargetPolicy(tasks=frozenset({"acme.report", "acme.mail"})))
UNKNOWN = IntakePolicy()


def error_of(verb: str, body: dict[str, Any], policy: IntakePolicy) -> ErrorDetail | None:
    """The error of a command, or None if intake accepts it."""
    request = IncomingRequest(
        routing_key=f"acme.schedule.{verb}", body=orjson.dumps({"key": "hello", **body})
    )
    result = check(request, accepted_at=NOW, policy=policy)
    return result.rejections[0].response.error if result.rejections else None


def task(name: str) -> dict[str, Any]:
    return {"target": {"task": {"name": name}}}


@pytest.mark.requirement("S15")
@pytest.mark.parametrize(
    ("verb", "body", "field"),
    [
        ("put", {"when": {"now": True}, **task("acme.reprot")}, "target.task.name"),
        ("patch", {"set": task("acme.reprot")}, "set.target.task.name"),
    ],
)
def test_command_is_rejected_when_its_task_is_not_known(
    verb: str, body: dict[str, Any], field: str
) -> None:
    error = error_of(verb, body, KNOWN)

    assert error is not None
    assert (error.code, error.field) == ("unknown_task", field)
    assert "acme.reprot" in error.reason


@pytest.mark.requirement("S15")
@pytest.mark.parametrize(
    ("verb", "body", "policy"),
    [
        ("put", {"when": {"now": True}, **task("acme.mail")}, KNOWN),
        (
            "put",
            {"when": {"now": True}, "target": {"http": {"url": "https://acme.example"}}},
            KNOWN,
        ),
        ("put", {"when": {"now": True}, **task("acme.reprot")}, UNKNOWN),
        ("patch", {"set": task("acme.report")}, KNOWN),
        ("patch", {"set": {"owner": "team-sales"}}, KNOWN),
        ("patch", {"set": {"target": {"task": {"args": {"day": "monday"}}}}}, KNOWN),
    ],
)
def test_command_is_accepted_when_it_names_no_unknown_task(
    verb: str, body: dict[str, Any], policy: IntakePolicy
) -> None:
    assert error_of(verb, body, policy) is None
