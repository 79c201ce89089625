"""Invalid commands: intake rejects each with a code, a field and a reason, and publishes none."""

from datetime import UTC, datetime, timedelta
from ipaddress import ip_network
from typing import Any

import orjson
import pytest
from tests.fakes.command_check import check

from harebell.contract.commands import MAX_BODY, MAX_ITEM, MAX_ITEMS
from harebell.contract.types import instant_text
from harebell.domain.url_policy import Egress
from harebell.intake.commands.check import CheckResult, IncomingRequest
from harebell.intake.commands.rules import IntakePolicy, TargetPolicy

NOW = datetime(2026, 11, 20, 14, tzinfo=UTC)
HOOK = {"http": {"url": "https://acme.example/hook"}}
GOOD: dict[str, Any] = {"key": "hello", "when": {"now": True}, "target": HOOK}
EARLIER = "2026-11-20T13:00:00Z"
LATER = "2026-11-20T15:00:00Z"
BACKFILL = {"key": "a", "request_id": "r", "from": EARLIER, "to": EARLIER}
DEEP = b"[" * 500 + b"]" * 500
EXCHANGE = "target.amqp.exchange"
URL = "target.http.url"
ONE_WHEN = "must have exactly one of now, at"


def put_http(url: str) -> bytes:
    return put(target={"http": {"url": url}})


def nested(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


def put(**fields: Any) -> bytes:
    return orjson.dumps({**GOOD, **fields})


def put_body(body: Any) -> bytes:
    return put(target={"http": {"url": "https://acme.example/hook", **body}})


def put_cron(expression: str, **fields: Any) -> bytes:
    return put(when={"cron": expression, **fields})


def put_any_of(*rules: Any, **fields: Any) -> bytes:
    return put(when={"any_of": rules, **fields})


def put_without(field: str) -> bytes:
    return orjson.dumps({name: value for name, value in GOOD.items() if name != field})


def put_past(**ago: float) -> bytes:
    return put(when={"at": instant_text(NOW - timedelta(**ago))})


def checked(body: bytes, routing_key: str = "acme.schedule.put", **properties: Any) -> CheckResult:
    return check(IncomingRequest(routing_key=routing_key, body=body, **properties), accepted_at=NOW)


BAD_PUTS = [
    # not JSON, or JSON that PostgreSQL cannot store
    (b"{when: now}", "not_json", None, "not JSON"),
    (b"", "not_json", None, "it is empty"),
    (b'{"key": "\xff"}', "not_json", None, "must be UTF-8"),
    (rb'{"key": "\ud800"}', "not_json", None, "surrogate"),
    (b'{"metadata": {"n": NaN}}', "not_json", None, "not JSON"),
    (b'{"metadata": {"n": 18446744073709551616}}', "integer_too_long", None, "more than 64 bits"),
    (put(key="a\0b"), "nul_character", "key", "NUL"),
    (put(metadata={"a": {"b": "\0"}}), "nul_character", "metadata.a", "NUL"),
    (put_body({"text": "a\0b"}), "nul_character", "target.http.text", "NUL"),
    # the fields
    (b"null", "invalid", None, "must be an object"),
    (b'"daily"', "invalid", None, "must be an object"),
    (put(colour="blue"), "unknown_field", "colour", "is unknown"),
    (put_cron("* * * * *", timezome="UTC"), "unknown_field", "when.timezome", "is unknown"),
    (put_without("target"), "missing_field", "target", "required"),
    (put(key=7), "invalid", "key", "string"),
    (put(priority="high"), "invalid", "priority", "integer"),
    (put(priority=11), "invalid", "priority", "10"),
    (put(tags="one"), "invalid", "tags", "list"),
    (put(retry={"max_attempts": 0}), "invalid", "retry.max_attempts", "1"),
    (put(overlap="never"), "invalid", "overlap", "allow"),
    (put(timeout="2h"), "invalid_duration", "timeout", "1h"),
    (put(timeout=30), "invalid_duration", "timeout", "string"),
    (put(tenant="@").replace(b'"@"', DEEP), "invalid", "tenant", "string"),
    # when
    (put(when={}), "invalid_when", "when", ONE_WHEN),
    (put(when={"now": True, "at": "2026-11-20T15:00:00Z"}), "invalid_when", "when", ONE_WHEN),
    (put(when="tomorrow"), "invalid_when", "when", "object"),
    (put(when={"at": "2026-11-20T15:00:00"}), "naive_instant", "when.at", "offset"),
    (put(when={"at": "tomorrow"}), "invalid_instant", "when.at", "ISO 8601"),
    (put(when={"at": "9999-12-31T23:59:59Z"}), "invalid_instant", "when.at", "2200"),
    (put_past(hours=1, seconds=1), "too_late", "when.at", "at most 1h before"),
    (put(when={"every": "500ms"}), "invalid_duration", "when.every", "from 1s"),
    (put(when={"every": "1h", "timezone": "Mars"}), "unknown_timezone", "when.timezone", "Mars"),
    (put_cron("* * * * *", timezone="../UTC"), "unknown_timezone", "when.timezone", "IANA"),
    (put_cron("75 9 * * *"), "invalid_cron", "when.cron", "75"),
    (put_cron("every monday"), "invalid_cron", "when.cron", "field"),
    (put_cron("* " * 200), "invalid", "when.cron", "256"),
    (put_cron("0 0 30 2 *"), "invalid_cron", "when.cron", "no date matches"),
    (
        put_cron("0 0 * * *", start="2026-11-22", end="2026-11-21"),
        "invalid_bounds",
        "when.end",
        "later than the start",
    ),
    (put_cron("0 0 * * *", end="9999-12-31"), "invalid_instant", "when.end", "2200"),
    (
        put_any_of({"cron": "0 9 * * *"}, {"cron": "75 9 * * *"}),
        "invalid_cron",
        "when.any_of[1].cron",
        "75",
    ),
    (
        put_any_of({"every": "1h", "timezone": "Mars"}),
        "unknown_timezone",
        "when.any_of[0].timezone",
        "Mars",
    ),
    (
        put_any_of({"at": "2026-11-20T12:00:00Z"}),
        "too_late",
        "when.any_of[0].at",
        "at most 1h before",
    ),
    (
        put_any_of({"now": True}, start="2026-11-22", end="2026-11-21"),
        "invalid_bounds",
        "when.end",
        "start",
    ),
    (put(effective_at="2026-11-20T14:00:00Z"), "not_in_future", "effective_at", "must be after"),
    # target
    (put(target={}), "invalid_target", "target", "exactly one"),
    (put(target={"ftp": {}}), "invalid_target", "target", "but has ftp"),
    (put(target={**HOOK, "task": {"name": "x"}}), "invalid_target", "target", "exactly one"),
    (put_http("ftp://acme.example"), "invalid", URL, "begin with http://"),
    (put_http("http://10.0.0.7/"), "private_address", URL, "public"),
    (put_http("http://localhost"), "private_address", URL, "localhost"),
    (put_http("http://0x7f.1/"), "private_address", URL, "127.0.0.1"),
    (put_http("http://[::1]/"), "private_address", URL, "::1"),
    (put_http("http://1.2.3.4.5/"), "invalid_url", URL, "IPv4"),
    (put_body({"headers": {"Host": "x"}}), "reserved_header", "target.http.headers", "Host"),
    (put_body({"text": "x", "json": 1}), "invalid_payload", "target.http", "at most one"),
    (put_body({"base64": "ä"}), "invalid_base64", "target.http.base64", "base64"),
    (put_body({"base64": "?"}), "invalid_base64", "target.http.base64", "base64"),
    (put_body({"text": "x" * 65_537}), "too_large", "target.http", "65536"),
    (put_body({"json": nested(33)}), "too_deep", "target.http.json", "32 levels"),
    (put_body({"json": "@"}).replace(b'"@"', DEEP), "too_deep", "target.http.json", "32 levels"),
    (put(target={"amqp": {"exchange": "amq.topic"}}), "reserved_exchange", EXCHANGE, "reserved"),
    # the size
    (b" " * (MAX_BODY + 1), "too_large", None, str(MAX_BODY)),
    (b"[]", "no_items", None, "empty"),
    (b"[" + b",".join([b"{}"] * (MAX_ITEMS + 1)) + b"]", "too_many_items", None, str(MAX_ITEMS)),
    # the tenant and the request id
    (put(tenant="globex"), "foreign_tenant", "tenant", "acme"),
    (put_without("key"), "missing_request_id", "request_id", "retry"),
]


@pytest.mark.requirement("S23")
@pytest.mark.parametrize(("body", "code", "field", "reason"), BAD_PUTS)
def test_put_is_rejected_with_field_and_reason(
    body: bytes, code: str, field: str | None, reason: str
) -> None:
    found = checked(body)

    assert found.is_rejected
    (rejection,) = found.rejections
    error = rejection.response.error
    assert (error.code, error.field) == (code, field)
    assert reason in error.reason
    assert [item.body for item in found.accepted.items] == [None]


BAD_COMMANDS = [
    ("acme.schedule.explode", {}, "unknown_command", None),
    ("acme", {}, "unknown_command", None),
    ("ACME.schedule.pause", {"key": "a"}, "invalid_tenant", None),
    (".schedule.pause", {"key": "a"}, "invalid_tenant", None),
    ("acme.schedule.pause", {}, "invalid_reference", None),
    (
        "acme.schedule.pause",
        {"key": "a", "id": "5f0c1a52-7d4f-5c1b-9d80-0d3c1c3f7a11"},
        "invalid_reference",
        None,
    ),
    ("acme.schedule.cancel", {"id": "daily"}, "invalid", "id"),
    ("acme.schedule.resume", {"key": "a", "until": "1h"}, "unknown_field", "until"),
    ("acme.schedule.trigger", {"key": "a"}, "missing_request_id", "request_id"),
    (
        "acme.schedule.backfill",
        {"key": "a", "from": EARLIER, "to": EARLIER},
        "missing_request_id",
        "request_id",
    ),
    ("acme.schedule.backfill", {**BACKFILL, "to": "2026-11-20T12:59:00Z"}, "invalid_bounds", "to"),
    ("acme.schedule.backfill", {**BACKFILL, "to": LATER}, "not_in_past", "to"),
    ("acme.schedule.backfill", {**BACKFILL, "from": "2026-10-20T14:00:00Z"}, "too_late", "from"),
    ("acme.schedule.backfill", {**BACKFILL, "max": 1001}, "invalid", "max"),
    ("acme.schedule.skip", {"key": "a"}, "missing_field", "at"),
    ("acme.schedule.pause", {"key": "a", "until": EARLIER}, "not_in_future", "until"),
    ("acme.schedule.pause", {"select": {"tag": "x"}}, "missing_request_id", "request_id"),
    ("acme.schedule.pause", {"select": {}, "request_id": "r"}, "invalid_filter", "select"),
    (
        "acme.schedule.pause",
        {"select": {"state": "asleep"}, "request_id": "r"},
        "invalid_state",
        "select.state",
    ),
    (
        "acme.schedule.cancel",
        {"bulk_operation_id": "r-1", "request_id": "r"},
        "invalid_reference",
        "bulk_operation_id",
    ),
    ("acme.schedule.patch", {"key": "a"}, "missing_field", "set"),
    ("acme.schedule.patch", {"key": "a", "set": {}}, "empty_patch", "set"),
    ("acme.schedule.patch", {"key": "a", "set": {"colour": 1}}, "unknown_field", "set.colour"),
    ("acme.schedule.patch", {"key": "a", "set": {"key": "b"}}, "immutable_field", "set.key"),
    ("acme.schedule.patch", {"key": "a", "set": {"target": None}}, "missing_field", "set.target"),
    (
        "acme.schedule.patch",
        {"key": "a", "set": {"retry": {"max_attempts": 0}}},
        "invalid",
        "set.retry.max_attempts",
    ),
    (
        "acme.schedule.patch",
        {"key": "a", "set": {"when": {"cron": "75 * * * *"}}},
        "invalid_cron",
        "set.when.cron",
    ),
    (
        "acme.schedule.patch",
        {"key": "a", "set": {"target": {"http": {"url": "http://10.0.0.7"}}}},
        "private_address",
        "set.target.http.url",
    ),
    (
        "acme.schedule.patch",
        {"key": "a", "set": {"owner": "b"}, "effective_at": EARLIER},
        "not_in_future",
        "effective_at",
    ),
    ("acme.run.resolve", {"run_id": "that one", "as": "retry"}, "invalid_run_id", "run_id"),
    ("acme.run.resolve", {"run_id": "x", "as": "lost"}, "invalid", "as"),
    ("acme.run.cancel", {"run_id": "the one of today"}, "invalid_run_id", "run_id"),
    ("acme.dlq.replay", {"ids": []}, "invalid", "ids"),
    ("acme.dlq.discard", {"ids": ["first"]}, "invalid", "ids[0]"),
]


@pytest.mark.parametrize(("routing_key", "body", "code", "field"), BAD_COMMANDS)
def test_command_is_rejected_with_field(
    routing_key: str, body: Any, code: str, field: str | None
) -> None:
    found = checked(orjson.dumps(body), routing_key)

    assert found.is_rejected
    error = found.rejections[0].response.error
    assert (error.code, error.field) == (code, field)
    assert error.reason


@pytest.mark.parametrize("body", [b"@", put(tenant="@"), put_body({"json": "@"})])
def test_nesting_beyond_the_limit_of_the_interpreter_is_rejected(body: bytes) -> None:
    deep = b"[" * 1015 + b"1234567890123456789" + b"]" * 1015
    found = checked(body.replace(b'"@"', deep).replace(b"@", deep))

    assert found.is_rejected


def test_error_in_an_array_has_the_index_of_its_item() -> None:
    found = checked(orjson.dumps([GOOD, {**GOOD, "when": {"cron": "75 * * * *"}}, 7]))

    errors = [rejection.response.error for rejection in found.rejections]
    assert [error.field for error in errors] == ["[1].when.cron", "[2]"]
    assert errors[0].position == 0


def test_message_id_with_a_nul_character_is_rejected() -> None:
    found = checked(put(), message_id="a\0b")

    assert found.rejections[0].response.error.field == "message_id"


def test_item_is_rejected_when_only_its_total_size_is_too_large() -> None:
    text = "\x01" * (MAX_ITEM // 2)  # within the limit of a payload, and six times as long in JSON
    found = checked(put(target={"http": {"url": "https://acme.example/", "text": text}}))

    error = found.rejections[0].response.error
    assert (error.code, error.field) == ("too_large", None)
    assert str(MAX_ITEM) in error.reason


@pytest.mark.parametrize(
    "body", [put_past(minutes=59), put_body({"json": nested(32)}), put(tenant="acme")]
)
def test_command_at_its_limits_is_accepted(body: bytes) -> None:
    assert checked(body).rejections == ()


def test_private_address_in_an_allowed_network_is_accepted() -> None:
    body = put(target={"http": {"url": "http://10.1.2.3/"}})
    policy = IntakePolicy(TargetPolicy(Egress([ip_network("10.1.0.0/16")])))

    found = check(
        IncomingRequest(routing_key="acme.schedule.put", body=body), accepted_at=NOW, policy=policy
    )

    assert found.rejections == ()
