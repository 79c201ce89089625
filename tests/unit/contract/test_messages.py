"""Messages: strict and lenient models, the errors of invalid fields, bodies and events."""

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, Final

import pytest
from pydantic import ValidationError

from harebell.contract.commands import BulkCommand, SchedulePause, SchedulePut
from harebell.contract.control import StopRequest
from harebell.contract.errors import InvalidInput
from harebell.contract.events import EVENT_DATA, ScheduleEventData, make_event
from harebell.contract.message import (
    MAX_INPUT_SHOWN,
    Message,
    build_models,
    field_path,
    parse,
    quoted,
)
from harebell.contract.queries import RunList, SchedulePreview
from harebell.contract.responses import Page
from harebell.contract.schedule import Definition
from harebell.contract.target import AmqpMessage, HttpCall
from harebell.contract.views import RunView

HOOK: Final = "https://acme.example/hook"
TASK: Final = {"task": {"name": "acme.report"}}
PUT: Final[dict[str, Any]] = {"key": "a", "when": {"now": True}, "target": TASK}
ID: Final = "6f0a7c0e-3d2b-5b53-9c1e-4d7a0f2b8e11"


@pytest.mark.parametrize(
    ("loc", "path"),
    [
        ((), ""),
        (("when", "<cron", "cron"), "when.cron"),
        (("items", 1, "key"), "items[1].key"),
        ((0, "key"), "[0].key"),
    ],
)
def test_field_path_has_the_form_that_users_write(loc: tuple[int | str, ...], path: str) -> None:
    assert field_path(loc) == path


@pytest.mark.parametrize("value", ["x" * 10_000, [["x" * 100] * 100] * 100, b"x" * 10_000])
def test_quoted_is_short_for_a_long_value(value: object) -> None:
    assert len(quoted(value)) <= MAX_INPUT_SHOWN + len("...")


@pytest.mark.parametrize(
    ("fields", "field", "reason"),
    [
        ({"priority": 11}, "priority", "The value must be less than or equal to 10, not 11."),
        ({"tags": "one"}, "tags", "The value must be a valid list, not 'one'."),
        ({"colour": "blue"}, "colour", "The field 'colour' is unknown."),
        ({"target": None}, "target", "The value must be an object, not None."),
        ({"metadata": 7}, "metadata", "The value must be an object, not 7."),
        ({"pool": "A b"}, "pool", "The value must have 1 to 63 lower-case letters"),
        (
            {"target": {"http": {"url": "ftp://acme.example/"}}},
            "target.http.url",
            "The value must begin with http:// or https://, have a host, and contain no space",
        ),
        (
            {"catch_up": {"not_after": "24:00"}},
            "catch_up.not_after",
            "The value must be a time of day in the form 22:30, not '24:00'.",
        ),
        (
            {"sign": ["../x"]},
            "sign[0]",
            "The value must have 1 to 128 letters, digits, dots, _ and -, and begin with a letter",
        ),
        (
            {"target": {"http": {"url": HOOK, "headers": {"a b": "c"}}}},
            "target.http.headers.a b.[key]",
            "The value must have 1 to 128 letters, digits and signs that HTTP allows in a name",
        ),
        (
            {"tags": ["x"] * 33},
            "tags",
            "The list must have at most 32 items, not 33.",
        ),
        (
            {"key": "k" * 257},
            "key",
            "The text must have at most 256 characters, not 257.",
        ),
        (
            {"overlap": "never"},
            "overlap",
            "The value must be 'allow', 'skip', 'queue' or 'replace', not 'never'.",
        ),
    ],
)
def test_error_of_a_field_is_a_sentence(fields: dict[str, Any], field: str, reason: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        parse(SchedulePut, PUT | fields)

    assert caught.value.field == field
    assert caught.value.reason.startswith(reason)
    assert caught.value.reason.endswith(".")


@pytest.mark.parametrize("url", ["HTTP://acme.example/", "Https://acme.example", "hTTp://[::1]/x"])
def test_scheme_of_a_url_may_have_capital_letters(url: str) -> None:
    assert parse(HttpCall, {"url": url}).url == url


@pytest.mark.parametrize(
    "given", [{}, {"key": "a", "id": ID}, {"key": "a", "select": {"tag": "x"}}]
)
def test_command_rejects_another_number_of_references(given: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput) as caught:
        parse(SchedulePause, given)

    found = ", ".join(given) or "none of them"
    assert caught.value.code == "invalid_reference"
    assert caught.value.reason == (
        f"The message must have exactly one of key, id, select, bulk_operation_id, but has {found}."
    )


def test_preview_rejects_a_key_next_to_a_definition() -> None:
    with pytest.raises(InvalidInput, match="exactly one of key, id, definition"):
        parse(SchedulePreview, {"key": "a", "definition": {"when": {"now": True}, "target": TASK}})


@pytest.mark.parametrize(
    ("fields", "is_bulk"),
    [
        ({"key": "a"}, False),
        ({"id": ID}, False),
        ({"select": {"tag": "x"}}, True),
        ({"bulk_operation_id": "r-1"}, True),
    ],
)
def test_command_is_bulk_with_a_filter_or_a_bulk_operation(
    fields: dict[str, Any], *, is_bulk: bool
) -> None:
    command = parse(BulkCommand, fields)

    assert command.is_bulk is is_bulk


def test_put_is_not_bulk() -> None:
    assert not parse(SchedulePut, PUT).is_bulk


def test_run_list_accepts_a_time_with_an_offset_only() -> None:
    with pytest.raises(InvalidInput) as caught:
        parse(RunList, {"until": "2026-11-20T14:00:00"})

    assert (caught.value.code, caught.value.field) == ("naive_instant", "until")


def test_message_is_frozen() -> None:
    stop = StopRequest(run_id="a")

    with pytest.raises(ValidationError):
        stop.run_id = "b"  # type: ignore[misc]  # the test expects the error


@pytest.mark.parametrize(
    ("body", "sent", "content_type"),
    [
        ({}, None, None),
        ({"json": None}, b"null", "application/json"),
        ({"json": {"a": 1}}, b'{"a":1}', "application/json"),
        ({"text": ""}, b"", "text/plain; charset=utf-8"),
        ({"text": "é"}, "é".encode(), "text/plain; charset=utf-8"),
        ({"base64": "AP8="}, b"\x00\xff", "application/octet-stream"),
    ],
)
def test_payload_has_the_bytes_and_the_content_type_of_its_body(
    body: dict[str, Any], sent: bytes | None, content_type: str | None
) -> None:
    call = parse(HttpCall, {"url": HOOK, **body})

    assert call.body() == sent
    assert call.content_type() == content_type


@pytest.mark.parametrize("body", [{"json": None, "text": ""}, {"text": "a", "base64": ""}])
def test_payload_rejects_two_bodies(body: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput, match="at most one") as caught:
        parse(HttpCall, {"url": HOOK, **body})

    assert caught.value.code == "invalid_payload"


@pytest.mark.parametrize(
    "name",
    [
        "Harebell-Run-Id",
        "harebell-tenant",
        "Webhook-Id",
        "webhook-signature",
        "idempotency-key",
    ],
)
def test_reserved_header_is_rejected(name: str) -> None:
    for model, call in ((HttpCall, {"url": HOOK}), (AmqpMessage, {"exchange": "acme.jobs"})):
        with pytest.raises(InvalidInput) as caught:
            parse(model, {**call, "headers": {name: "x"}})

        assert (caught.value.code, caught.value.field) == ("reserved_header", "headers")


@pytest.mark.parametrize("name", ["HOST", "Content-Length"])
def test_header_of_the_connection_is_rejected_for_http_only(name: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        parse(HttpCall, {"url": HOOK, "headers": {name: "x"}})
    message = parse(AmqpMessage, {"exchange": "acme.jobs", "headers": {name: "x"}})

    assert (caught.value.code, caught.value.field) == ("reserved_header", "headers")
    assert message.headers == {name: "x"}


@pytest.mark.parametrize(
    "value",
    [
        None,
        "ä" * 10_000,
        -(2**63),
        {"json": None},
        {"json": [1, None]},
        {"base64": "/w=="},
        {"timestamp": "2026-02-03T04:05:06Z"},
    ],
)
def test_header_of_an_amqp_message_stays_the_same(value: object) -> None:
    call = {"exchange": "acme.jobs", "headers": {"a": value}}

    assert parse(AmqpMessage, call).model_dump(mode="json", by_alias=True, exclude_none=True)[
        "headers"
    ] == {"a": value}


@pytest.mark.parametrize(
    ("headers", "field", "code", "reason"),
    [
        ({"a": {"json": 1, "base64": ""}}, "headers.a", "invalid_header", "one of json"),
        ({"a": {"base64": "?"}}, "headers.a", "invalid_base64", "valid base64"),
        ({"a": {"json": 1, "other": 1}}, "headers.a.other", "unknown_field", "'other'"),
        ({"a": {"other": 1}}, "headers.a", "invalid_header", "the field secret, run, json"),
        ({"a": {}}, "headers.a", "invalid_header", "the field secret, run, json"),
        ({"a": [1]}, "headers.a", "invalid_header", 'needs the form {"json": []}'),
        ({"a": "b\x00"}, "headers.a", "nul_character", "NUL"),
        ({"a": 2**63}, "headers", "integer_too_long", "at most 64 bits"),
        ({"a": {"json": [{"b": -(2**63) - 1}]}}, "headers", "integer_too_long", "64 bits"),
        ({"ä" * 128: 1}, "headers", "too_long", "at most 255 bytes in UTF-8, not 256"),
        ({"a": {"json": [{"b" * 256: 1}]}}, "headers", "too_long", "'bbb"),
        ({"a": {"json": "x" * 98_304}}, "headers", "too_large", "at most 98304 bytes"),
        (dict.fromkeys("abcdefg", "x" * 16_000), "headers", "too_large", "98304 bytes"),
        ({"a": {"json": [0] * 20_000}}, "headers", "too_large", "98304 bytes"),
    ],
)
def test_amqp_header_that_cannot_be_sent_is_rejected(
    headers: dict[str, Any], field: str, code: str, reason: str
) -> None:
    with pytest.raises(InvalidInput) as caught:
        parse(AmqpMessage, {"exchange": "acme.jobs", "headers": headers})

    assert (caught.value.field, caught.value.code) == (field, code)
    assert reason in caught.value.reason


@pytest.mark.parametrize(
    ("exchange", "code", "reason"),
    [
        ("", "reserved_exchange", "The default exchange reaches every queue"),
        ("acme\njobs", "invalid_exchange", "must not contain a line break"),
        ("ä" * 128, "too_long", "at most 255 bytes in UTF-8, not 256"),
        ("amq.topic", "reserved_exchange", "`harebell.` or `amq.`"),
        (None, "invalid", "must be a valid string, not None"),
    ],
)
def test_exchange_that_no_message_can_reach_is_rejected(
    exchange: object, code: str, reason: str
) -> None:
    with pytest.raises(InvalidInput) as caught:
        parse(AmqpMessage, {"exchange": exchange})

    assert (caught.value.field, caught.value.code) == ("exchange", code)
    assert reason in caught.value.reason


WRONG: Final[list[Any]] = [None, True, 5, -1.5, "", "\x00", [], [None], {}, {"a": None}, {"": [{}]}]
DEFINITIONS: Final[list[dict[str, Any]]] = [
    {
        "key": "a",
        "when": {"cron": "* * * * *", "timezone": "UTC", "jitter": "1s"},
        "target": {"http": {"url": HOOK, "headers": {"a": "b"}, "userinfo": {"user": "a"}}},
        "retry": {"max_attempts": 3},
        "tags": ["a"],
    },
    {
        "key": "a",
        "when": {"at": "2030-01-01T00:00:00Z"},
        "target": {
            "amqp": {
                "exchange": "acme.jobs",
                "headers": {"a": {"json": 1}, "b": {"secret": "c"}, "d": {"run": "id"}},
                "correlation_id": {"run": "id"},
                "priority": 1,
            }
        },
    },
    {"key": "a", "when": {"any_of": [{"every": "1m"}]}, "target": {"task": {"name": "a"}}},
]


def _replaced(value: Any, wrong: object) -> Iterator[Any]:
    """Yield the value once for each of its parts, with the wrong value in its place."""
    yield wrong
    if not isinstance(value, dict | list):
        return
    for name in value if isinstance(value, dict) else range(len(value)):
        for changed in _replaced(value[name], wrong):
            copy = value.copy()
            copy[name] = changed
            yield copy


@pytest.mark.parametrize("definition", DEFINITIONS)
def test_error_of_a_wrong_value_names_a_field_and_no_function(definition: dict[str, Any]) -> None:
    parse(Definition, definition)
    errors = []
    for wrong in WRONG:
        for changed in _replaced(definition, wrong):
            try:
                parse(Definition, changed)
            except InvalidInput as error:
                errors.append(f"{error.field}: {error.reason}")

    internal = re.compile(r"function|constrained|0x[0-9a-f]{6}|tagged|union|union_tag")
    assert errors
    assert [told for told in errors if internal.search(told) or not told.endswith(".")] == []


@pytest.mark.parametrize(
    "name",
    [
        "CC",
        "BCC",
        "x-cc",
        "x-death",
        "X-Death",
        "x-first-death-queue",
        "x-last-death-reason",
        "x-delivery-count",
        "x-stream-filter-value",
        "x-opt-delivery-time",
        "x-received-from",
        "x-shovelled",
    ],
)
def test_header_that_the_broker_interprets_is_rejected(name: str) -> None:
    with pytest.raises(InvalidInput, match="because RabbitMQ interprets it") as caught:
        parse(AmqpMessage, {"exchange": "acme.jobs", "headers": {"a": 1, name: "x"}})

    assert (caught.value.code, caught.value.field) == ("reserved_header", "headers")
    assert name in caught.value.reason


def test_other_headers_with_x_stay() -> None:
    headers = {"x-delay": 5000, "x-request-id": "r", "x-trace": True, "cc": "not routing"}

    assert parse(AmqpMessage, {"exchange": "acme.jobs", "headers": headers}).headers == headers


@pytest.mark.parametrize(
    ("fields", "field", "code", "reason"),
    [
        ({"type": ""}, "type", "invalid", "must not be empty"),
        ({"type": "é" * 128}, "type", "too_long", "at most 255 bytes in UTF-8, not 256"),
        ({"app_id": "a" * 256}, "app_id", "too_long", "at most 255 bytes in UTF-8, not 256"),
        ({"message_id": "a\x00"}, "message_id", "nul_character", "NUL"),
        ({"content_encoding": 8}, "content_encoding", "invalid", "string, not 8"),
        ({"priority": 256}, "priority", "invalid", "less than or equal to 255, not 256"),
        ({"priority": -1}, "priority", "invalid", "greater than or equal to 0, not -1"),
        ({"priority": True}, "priority", "invalid", "integer, not True"),
        ({"expiration": "50d"}, "expiration", "invalid_duration", "at most 4294967295 ms"),
        ({"expiration": 5000}, "expiration", "invalid_duration", "such as 30s"),
        ({"correlation_id": {"run": "key"}}, "correlation_id.run", "invalid", "'id'"),
        ({"correlation_id": {"secret": "a"}}, "correlation_id.run", "missing_field", "required"),
        ({"correlation_id": 5}, "correlation_id", "invalid", "string, not 5"),
        ({"headers": {"task-id": {"run": 1}}}, "headers.task-id.run", "invalid", "'id'"),
        ({"reply_to": "amq.rabbitmq.reply-to"}, "reply_to", "reserved_queue", "begins with"),
        ({"reply_to": "harebell.intake"}, "reply_to", "reserved_queue", "begins with"),
        ({"user_id": "guest"}, "user_id", "unknown_field", "unknown"),
        ({"delivery_mode": 1}, "delivery_mode", "unknown_field", "unknown"),
    ],
)
def test_invalid_property_is_rejected(
    fields: dict[str, Any], field: str, code: str, reason: str
) -> None:
    with pytest.raises(InvalidInput) as caught:
        parse(AmqpMessage, {"exchange": "acme.jobs", **fields})

    assert (caught.value.field, caught.value.code) == (field, code)
    assert reason in caught.value.reason


def test_largest_properties_are_valid() -> None:
    longest = "é" * 127 + "a"
    fields = dict.fromkeys(
        ("type", "correlation_id", "reply_to", "message_id", "app_id", "content_encoding"), longest
    )

    message = parse(AmqpMessage, {"exchange": "acme.jobs", "priority": 255, **fields})

    assert message.model_dump(mode="json", by_alias=True, exclude_defaults=True) == {
        "exchange": "acme.jobs",
        "priority": 255,
        **fields,
    }


def test_repeated_event_has_the_same_id_and_no_nulls() -> None:
    at = datetime(2026, 11, 20, 14, tzinfo=UTC)
    data = ScheduleEventData(key="a")
    first, second = (
        make_event("acme", "schedule.paused", data, id_="f", subject="a", at=at) for _ in range(2)
    )

    assert first == second
    assert (first["id"], first["source"], first["type"]) == (
        "f/schedule.paused",
        "/harebell/acme",
        "harebell.schedule.paused.v1",
    )
    assert first["data"] == {"key": "a"}


def test_event_names_are_in_the_past_tense() -> None:
    # These names are the names of states and alerts.
    exceptions = {"dead", "retrying", "spike", "reset"}
    names = {verb.partition(".")[2] for verb in EVENT_DATA} - exceptions

    assert [name for name in names if not name.endswith("ed")] == []


def test_two_kinds_of_when_are_one_error() -> None:
    when = {"now": True, "after": "5s"}

    with pytest.raises(InvalidInput) as caught:
        parse(SchedulePut, {"when": when, "target": TASK})

    assert (caught.value.code, caught.value.field) == ("invalid_when", "when")
    assert "but has now, after." in caught.value.reason


def test_model_is_built_at_its_first_use_or_by_build_models() -> None:
    class Late(Message):
        number: int

    assert not Late.__pydantic_complete__

    build_models()

    assert Late.__pydantic_complete__
    assert Page[RunView].__pydantic_complete__
    assert parse(Late, {"number": 7}).number == 7
