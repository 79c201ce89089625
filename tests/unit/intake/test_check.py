"""Tests of accepted commands: their ids, their normal form, and the properties of the message."""

from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import orjson
import pytest
from tests.fakes.command_check import check

from harebell.contract.accepted_commands import AcceptedCommands
from harebell.contract.commands import SchedulePut
from harebell.contract.ids import RunKey, schedule_id, schedule_id_of_request
from harebell.contract.json_codec import encode
from harebell.domain.default_schedule import DefaultWhen
from harebell.domain.sender import UNKNOWN_TENANT, Sender
from harebell.intake.commands.check import IncomingRequest
from harebell.intake.commands.rules import IntakePolicy

NOW = datetime(2026, 11, 20, 14, tzinfo=UTC)
ID = UUID("5f0c1a52-7d4f-5c1b-9d80-0d3c1c3f7a11")
WITHOUT_KEY: dict[str, Any] = {"when": {"after": "5s"}, "target": {"task": {"name": "report"}}}
WITH_KEY = {**WITHOUT_KEY, "key": "hello"}


def accepted(
    body: Any, routing_key: str = "acme.schedule.put", message_id: str | None = None
) -> AcceptedCommands:
    request = IncomingRequest(
        routing_key=routing_key, body=orjson.dumps(body), message_id=message_id
    )
    result = check(request, accepted_at=NOW)
    assert result.rejections == ()
    return result.accepted


def test_schedule_id_is_derived_from_the_tenant_and_the_key() -> None:
    commands = accepted(WITH_KEY)

    assert commands.items[0].schedule_id == schedule_id("acme", "hello")


def test_schedule_id_is_derived_from_the_request_id_when_there_is_no_key() -> None:
    by_message = accepted(WITHOUT_KEY, message_id="m-1").items[0]
    by_body = accepted({**WITHOUT_KEY, "request_id": "r-1"}, message_id="m-1").items[0]

    assert by_message.schedule_id == schedule_id_of_request("acme", "m-1", None)
    assert by_body.schedule_id == schedule_id_of_request("acme", "r-1", None)


def test_items_of_an_array_have_different_schedule_ids() -> None:
    commands = accepted([WITHOUT_KEY, WITHOUT_KEY], message_id="m-1")

    assert not commands.single
    assert [item.index for item in commands.items] == [0, 1]
    assert [item.schedule_id for item in commands.items] == [
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
def test_item_contains_the_id_of_the_schedule_that_the_command_names(
    verb: str, body: dict[str, Any], expected: UUID | None
) -> None:
    commands = accepted(body, f"acme.{verb}")

    assert commands.items[0].schedule_id == expected


def test_request_id_is_that_of_the_body_or_else_the_message_id() -> None:
    results = [
        accepted({**WITH_KEY, "request_id": "r-1"}, message_id="m-1"),
        accepted(WITH_KEY, message_id="m-1"),
        accepted(WITH_KEY, message_id=""),
    ]

    assert [commands.items[0].request_id for commands in results] == ["r-1", "m-1", None]


def test_actor_and_reply_address_are_properties_of_the_message() -> None:
    request = IncomingRequest(
        routing_key="acme.schedule.put",
        body=orjson.dumps(WITH_KEY),
        reply_to="responses",
        correlation_id="c-1",
        sender=Sender(login="ann", tenant="acme"),
    )

    commands = check(request, accepted_at=NOW).accepted

    assert commands.actor == "ann"
    assert (commands.reply_to, commands.correlation_id) == ("responses", "c-1")
    assert commands.accepted_at == NOW


def test_item_omits_defaults_and_keeps_a_null_payload() -> None:
    target = {"http": {"url": "https://acme.example/hook", "json": None}}
    commands = accepted({**WITH_KEY, "target": target})

    body = commands.items[0].body
    assert "pool" not in body
    assert body["target"]["http"]["json"] is None
    assert (
        SchedulePut.model_validate(body).target
        == SchedulePut.model_validate({**WITH_KEY, "target": target}).target
    )


def test_tenant_is_unknown_when_the_routing_key_names_no_valid_tenant() -> None:
    result = check(IncomingRequest(routing_key="A.schedule.put", body=b"{}"), accepted_at=NOW)

    assert result.accepted.tenant == UNKNOWN_TENANT
    assert result.is_rejected


def test_rejection_contains_the_key_only_when_the_item_has_a_short_text_key() -> None:
    body = orjson.dumps([{"key": "a"}, {"key": 7}, 7, {"key": "x" * 1000}])
    result = check(IncomingRequest(routing_key="acme.schedule.put", body=body), accepted_at=NOW)

    assert [rejection.key for rejection in result.rejections] == ["a", None, None, None]


@pytest.mark.requirement("S09")
def test_put_gets_the_default_of_its_tenant_when_it_has_no_when() -> None:
    body = orjson.dumps({"key": "hello", "target": WITHOUT_KEY["target"]})
    policy = IntakePolicy(default_when=DefaultWhen.parse('{"acme": {"every": "1h"}}'))

    results = {
        tenant: check(
            IncomingRequest(routing_key=f"{tenant}.schedule.put", body=body),
            accepted_at=NOW,
            policy=policy,
        )
        for tenant in ("acme", "globex")
    }

    intervals = {
        tenant: result.accepted.items[0].body["when"]["every"] for tenant, result in results.items()
    }
    assert intervals == {"acme": "1h", "globex": "5m"}


@pytest.mark.parametrize(
    ("verb", "body"),
    [
        ("schedule.pause", {"select": {"tag": "reports"}}),
        ("schedule.cancel", {"select": {"owner": "team-sales", "state": "paused"}}),
        ("schedule.resume", {"bulk_operation_id": "r-1"}),
    ],
)
def test_bulk_operation_has_a_request_id_and_no_schedule_id(
    verb: str, body: dict[str, Any]
) -> None:
    item = accepted(body, f"acme.{verb}", message_id="m-1").items[0]

    assert (item.schedule_id, item.request_id) == (None, "m-1")


def test_bulk_operation_in_an_array_is_rejected_when_it_has_no_request_id() -> None:
    body = [{"select": {"tag": "a"}}, {"select": {"tag": "b"}, "request_id": "r-2"}]
    request = IncomingRequest(
        routing_key="acme.schedule.pause", body=orjson.dumps(body), message_id="m-1"
    )

    result = check(request, accepted_at=NOW)

    assert [each.response.error.field for each in result.rejections] == ["[0].request_id"]
    assert result.accepted.items[1].request_id == "r-2"


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
def test_patch_is_passed_on_as_the_user_sent_it(patch: dict[str, Any]) -> None:
    commands = accepted({"key": "hello", "set": patch}, "acme.schedule.patch")

    received = AcceptedCommands.model_validate_json(encode(commands))

    assert received.items[0].body["set"] == patch


@pytest.mark.parametrize(
    ("jitter", "expires_after", "is_accepted"),
    [("20s", "2s", False), ("20s", "20s", False), ("20s", "21s", True), ("0s", "2s", True)],
)
@pytest.mark.parametrize(
    "rule", [{"after": "5s"}, {"cron": "0 9 * * *"}, {"any_of": [{"every": "1m"}, {"now": True}]}]
)
def test_jitter_that_delays_runs_until_they_expire_is_rejected(
    rule: dict[str, Any], jitter: str, expires_after: str, *, is_accepted: bool
) -> None:
    when = {**rule, "jitter": jitter}
    body = orjson.dumps({**WITH_KEY, "when": when, "expires_after": expires_after})
    request = IncomingRequest(routing_key="acme.schedule.put", body=body, message_id=None)

    errors = [each.response.error for each in check(request, accepted_at=NOW).rejections]

    found = [(each.code, each.field) for each in errors]
    assert found == ([] if is_accepted else [("invalid_expiry", "expires_after")])
