"""A task that no executor has is refused at the door, if the door has been told which there are."""

from datetime import UTC, datetime
from typing import Any

import orjson
import pytest

from harebell.contract.responses import ErrorDetail
from harebell.intake.commands.check import IncomingRequest, check
from harebell.intake.commands.definition import TargetPolicy
from harebell.intake.commands.rules import IntakePolicy

NOW = datetime(2026, 11, 20, 14, tzinfo=UTC)
KNOWN = IntakePolicy(TargetPolicy(tasks=frozenset({"acme.report", "acme.mail"})))
UNKNOWN = IntakePolicy()


def fault(verb: str, body: dict[str, Any], rules: IntakePolicy) -> ErrorDetail | None:
    """The one of its only item."""
    submission = IncomingRequest(
        routing_key=f"acme.schedule.{verb}", body=orjson.dumps({"key": "hello", **body})
    )
    checked = check(submission, accepted_at=NOW, policy=rules)
    return checked.rejections[0].response.error if checked.rejections else None


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
def test_a_task_that_is_not_among_those_known_is_refused(
    verb: str, body: dict[str, Any], field: str
) -> None:
    found = fault(verb, body, KNOWN)

    assert found is not None
    assert (found.code, found.field) == ("unknown_task", field)
    assert "acme.reprot" in found.reason


@pytest.mark.requirement("S15")
@pytest.mark.parametrize(
    ("verb", "body", "rules"),
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
def test_whatever_else_is_put_or_patched_passes(
    verb: str, body: dict[str, Any], rules: IntakePolicy
) -> None:
    assert fault(verb, body, rules) is None
