"""Delegated calls: the answers that delegate a run, and the fields of the target."""

from datetime import timedelta
from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError
from tests.fakes.tickets import ticket

from harebell.contract.target import Target, delegation_of
from harebell.executor.targets.attempt import AttemptContext, Success
from harebell.executor.targets.call import is_accepted

URL = {"url": "https://acme.example/hook"}
READ: TypeAdapter[Any] = TypeAdapter(Target)

pytestmark = pytest.mark.requirement("S59")


def http(**fields: str) -> Any:
    return READ.validate_python({"http": {**URL, **fields}})


def amqp(**fields: str) -> Any:
    return READ.validate_python({"amqp": {"exchange": "acme.work", **fields}})


@pytest.mark.parametrize(
    ("target", "status", "expected"),
    [
        (http(completion="worker"), 202, True),
        (http(completion="worker"), 200, False),
        (http(completion="worker"), 204, False),
        (http(), 202, False),
        (amqp(completion="worker"), None, True),
        (amqp(), None, False),
        (READ.validate_python({"task": {"name": "acme.report"}}), None, False),
    ],
)
def test_accepted_call_delegates_the_run(
    target: Any, status: int | None, *, expected: bool
) -> None:
    assert is_accepted(target, Success(status)) is expected


def test_delegation_has_the_given_bounds_or_the_defaults() -> None:
    given = delegation_of(http(completion="worker", heartbeat="5s", max_duration="30d"))
    default = delegation_of(amqp(completion="worker"))

    assert given is not None
    assert default is not None
    assert (given.heartbeat, given.max_duration) == (timedelta(seconds=5), timedelta(days=30))
    assert (default.heartbeat, default.max_duration) == (timedelta(minutes=1), timedelta(days=7))


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"heartbeat": "60s"}, "need the field"),
        ({"max_duration": "60s"}, "need the field"),
        ({"completion": "worker", "heartbeat": "4s"}, "from 5s to 1h"),
        ({"completion": "worker", "max_duration": "31d"}, "from 5s to 30d"),
        ({"completion": "worker", "max_duration": "30s"}, "at most 30s, the max_duration"),
        ({"completion": "call"}, "worker"),
    ],
)
def test_invalid_completion_is_rejected_with_its_reason(fields: dict[str, str], text: str) -> None:
    with pytest.raises(ValidationError, match=text):
        http(**fields)


@pytest.mark.parametrize(
    ("fields", "expected"),
    [({}, None), ({"completion": "worker", "heartbeat": "90s"}, "90")],
)
def test_call_has_the_heartbeat_of_its_delegation(
    fields: dict[str, str], expected: str | None
) -> None:
    plain = ticket()
    spec = plain.run_spec.model_copy(update={"target": http(**fields)})
    run = plain.model_copy(update={"run_spec": spec})

    headers = AttemptContext(run, 1, 7, started_at=run.due_at).headers()

    assert headers.get("Harebell-Heartbeat") == expected
