"""The codes that a worker may give to a failure."""

from typing import Any

import orjson
import pytest
from tests.fakes.command_check import check
from tests.fakes.tickets import NINE, ticket

from harebell.contract.commands import RunFail
from harebell.contract.errors import InvalidInput
from harebell.contract.message import parse
from harebell.intake.commands.check import IncomingRequest


def checked(verb: str, **fields: Any) -> Any:
    body = {"run_id": ticket().run_id, "fencing_token": 7, **fields}
    request = IncomingRequest(routing_key=f"acme.{verb}", body=orjson.dumps(body))
    (item,) = check(request, accepted_at=NINE).accepted.items
    return item


@pytest.mark.requirement("S59")
@pytest.mark.parametrize("code", ["disk_full", "http_503", "x"])
def test_code_of_a_worker_is_accepted(code: str) -> None:
    assert checked("run.fail", code=code).rejection is None


@pytest.mark.requirement("S59")
@pytest.mark.parametrize("code", ["expired", "attempts_exhausted", "cancelled", "timeout"])
def test_code_that_harebell_gives_itself_is_rejected(code: str) -> None:
    error = checked("run.fail", code=code).rejection.error

    assert (error.code, error.field) == ("reserved_code", "code")


@pytest.mark.requirement("S59")
@pytest.mark.parametrize(
    ("verb", "fields", "field", "code"),
    [
        ("run.fail", {}, "code", "missing_field"),
        ("run.fail", {"code": "Disk full"}, "code", "invalid"),
        ("run.fail", {"code": "x", "reason": "y" * 1025}, "reason", "invalid"),
        ("run.fail", {"code": "x", "retry_after": "soon"}, "retry_after", "invalid_duration"),
        ("run.complete", {"result": "y" * 1024}, "result", "too_large"),
        ("run.complete", {"fencing_token": 0}, "fencing_token", "invalid"),
        ("run.complete", {"fencing_token": "7"}, "fencing_token", "invalid"),
        ("run.heartbeat", {"run_id": "no run"}, "run_id", "invalid_run_id"),
        ("run.heartbeat", {"extra": 1}, "extra", "unknown_field"),
    ],
)
def test_invalid_report_is_rejected_with_its_field(
    verb: str, fields: dict[str, Any], field: str, code: str
) -> None:
    error = checked(verb, **fields).rejection.error

    assert (error.field, error.code) == (field, code)


def test_report_of_a_worker_needs_no_request_id() -> None:
    assert checked("run.heartbeat").rejection is None


def test_code_has_at_most_64_characters() -> None:
    fields = {"run_id": ticket().run_id, "fencing_token": 7}

    assert parse(RunFail, fields | {"code": "x" * 64}).retryable
    with pytest.raises(InvalidInput):
        parse(RunFail, fields | {"code": "x" * 65})
