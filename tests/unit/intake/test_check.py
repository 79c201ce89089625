"""What becomes of a good command: its ids, its normal form, and whom it is from."""

from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import orjson
import pytest

from harebell.contract.accepted_commands import AcceptedCommands
from harebell.contract.commands import SchedulePut
from harebell.contract.ids import RunKey, schedule_id, schedule_id_of_request
from harebell.contract.json_codec import encode
from harebell.domain.default_schedule import DefaultWhen
from harebell.intake.commands.check import UNKNOWN_TENANT, IncomingRequest, check
from harebell.intake.commands.rules import IntakePolicy

NOW = datetime(2026, 11, 20, 14, tzinfo=UTC)
ID = UUID("5f0c1a52-7d4f-5c1b-9d80-0d3c1c3f7a11")
KEYLESS: dict[str, Any] = {"when": {"after": "5s"}, "target": {"task": {"name": "report"}}}
KEYED = {**KEYLESS, "key": "hello"}


def accepted(
    body: Any, routing_key: str = "acme.schedule.put", message_id: str | None = None
) -> AcceptedCommands:
    submission = IncomingRequest(
        routing_key=routing_key, body=orjson.dumps(body), message_id=message_id
    )
    checked = check(submission, accepted_at=NOW)
    assert checked.rejections == ()
    return checked.accepted


def test_the_tenant_and_the_key_name_a_schedule() -> None:
    change = accepted(KEYED)

    assert change.items[0].schedule_id == schedule_id("acme", "hello")


def test_a_schedule_without_a_key_is_named_by_its_request() -> None:
    by_message = accepted(KEYLESS, message_id="m-1").items[0]
    by_body = accepted({**KEYLESS, "request_id": "r-1"}, message_id="m-1").items[0]

    assert by_message.schedule_id == schedule_id_of_request("acme", "m-1", None)
    assert by_body.schedule_id == schedule_id_of_request("acme", "r-1", None)


def test_items_of_an_array_are_named_apart() -> None:
    change = accepted([KEYLESS, KEYLESS], message_id="m-1")

    assert not change.single
    assert [item.index for item in change.items] == [0, 1]
    assert [item.schedule_id for item in change.items] == [
        schedule_id_of_request("acme", "m-1", index) for index in (0, 1)
    ]


@pytest.mark.parametrize(
    ("verb", "body", "expected"),
    [
        ("schedule.pause", {"key": "hello"}, schedule_id("acme", "hello")),
        ("schedule.resume", {"id": str(ID)}, ID),
        ("run.cancel", {"run_id": str(RunKey(NOW, ID))}, ID),
        ("run.resolve", {"run_id": str(RunKey(NOW, ID)), "as": "retry"}, ID),
        (
            "schedule.skip",
            {"key": "hello", "at": "2026-11-21T14:00:00Z"},
            schedule_id("acme", "hello"),
        ),
        ("dlq.discard", {"ids": [str(ID)]}, None),
    ],
)
def test_a_command_is_told_which_schedule_it_is_for(
    verb: str, body: dict[str, Any], expected: UUID | None
) -> None:
    change = accepted(body, f"acme.{verb}")

    assert change.items[0].schedule_id == expected


def test_a_request_is_recognised_by_its_body_else_by_its_message_else_not() -> None:
    found = [
        accepted({**KEYED, "request_id": "r-1"}, message_id="m-1"),
        accepted(KEYED, message_id="m-1"),
        accepted(KEYED, message_id=""),
    ]

    assert [change.items[0].request_id for change in found] == ["r-1", "m-1", None]


def test_the_actor_and_the_way_back_are_those_of_the_message() -> None:
    body = orjson.dumps(KEYED)
    submission = IncomingRequest(
        routing_key="acme.schedule.put", body=body, reply_to="answers", correlation_id="c-1", user_id="ann"
    )

    change = check(submission, accepted_at=NOW).accepted

    assert (change.actor, change.reply_to, change.correlation_id) == ("ann", "answers", "c-1")
    assert change.accepted_at == NOW


def test_no_default_is_written_out_and_null_stays_a_payload() -> None:
    target = {"http": {"url": "https://acme.example/hook", "json": None}}
    change = accepted({**KEYED, "target": target})

    body = change.items[0].body
    assert "pool" not in body
    assert body["target"]["http"]["json"] is None
    assert (
        SchedulePut.model_validate(body).target
        == SchedulePut.model_validate({**KEYED, "target": target}).target
    )


def test_whoever_has_no_tenant_is_nobody() -> None:
    checked = check(IncomingRequest(routing_key="A.schedule.put", body=b"{}"), accepted_at=NOW)

    assert checked.accepted.tenant == UNKNOWN_TENANT
    assert checked.is_rejected


def test_the_events_of_refusals_know_the_key_where_there_was_one() -> None:
    body = orjson.dumps([{"key": "a"}, {"key": 7}, 7, {"key": "x" * 1000}])
    checked = check(IncomingRequest(routing_key="acme.schedule.put", body=body), accepted_at=NOW)

    assert [rejection.key for rejection in checked.rejections] == ["a", None, None, None]


@pytest.mark.requirement("S09")
def test_a_schedule_without_a_timing_gets_its_tenants_default() -> None:
    keyed = {"key": "hello", "target": KEYLESS["target"]}
    rules = IntakePolicy(default_when=DefaultWhen.parse('{"acme": {"every": "1h"}}'))

    found = {
        tenant: check(
            IncomingRequest(routing_key=f"{tenant}.schedule.put", body=orjson.dumps(keyed)),
            accepted_at=NOW,
            policy=rules,
        )
        for tenant in ("acme", "globex")
    }

    whens = {tenant: each.accepted.items[0].body["when"]["every"] for tenant, each in found.items()}
    assert whens == {"acme": "1h", "globex": "5m"}


@pytest.mark.parametrize(
    ("verb", "body"),
    [
        ("schedule.pause", {"select": {"tag": "reports"}}),
        ("schedule.cancel", {"select": {"owner": "team-sales", "state": "paused"}}),
        ("schedule.resume", {"receipt": "r-1"}),
    ],
)
def test_a_command_to_many_names_none_and_is_called_by_its_request(
    verb: str, body: dict[str, Any]
) -> None:
    item = accepted(body, f"acme.{verb}", message_id="m-1").items[0]

    assert (item.schedule_id, item.request_id) == (None, "m-1")


def test_in_an_array_each_command_to_many_has_a_request_of_its_own() -> None:
    body = [{"select": {"tag": "a"}}, {"select": {"tag": "b"}, "request_id": "r-2"}]
    submission = IncomingRequest(
        routing_key="acme.schedule.pause", body=orjson.dumps(body), message_id="m-1"
    )

    checked = check(submission, accepted_at=NOW)

    assert [each.response.error.field for each in checked.rejections] == ["[0].request_id"]
    assert checked.accepted.items[1].request_id == "r-2"


@pytest.mark.parametrize(
    "patch",
    [
        {"owner": None},
        {"retry": {"backoff": None, "max_attempts": 3}},
        {"when": {"jitter": "30s"}},
        {"when": {"cron": "0 9 * * *", "every": None}},
        {"target": {"http": {"headers": {"X-Region": "eu"}, "json": None}}},
    ],
)
def test_a_part_of_a_definition_is_taken_as_it_was_sent(patch: dict[str, Any]) -> None:
    change = accepted({"key": "hello", "set": patch}, "acme.schedule.patch")

    received = AcceptedCommands.model_validate_json(encode(change))

    assert received.items[0].body["set"] == patch
