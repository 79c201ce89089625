"""Redaction: the places of literal secrets, and the values that replace them."""

from typing import Any

import pytest

from harebell.contract.errors import InvalidInput
from harebell.contract.message import parse
from harebell.contract.redaction import (
    is_secret_header,
    literals_of,
    redact_bytes,
    redact_definition,
    redact_target,
    refuse_redacted,
    restore_literals,
)
from harebell.contract.schedule import Definition

pytestmark = pytest.mark.requirement("P7")

URL = "https://shop.example/hook"
REFERENCE = {"secret": "token"}


@pytest.mark.parametrize(
    "name",
    [
        "Authorization",
        "COOKIE",
        "proxy-any",
        "Proxy-Authorization",
        "X-Api-Key",
        "x-api-KEY",
        "X-Auth-Token",
        "-token",
    ],
)
def test_header_that_usually_contains_a_secret(name: str) -> None:
    assert is_secret_header(name)


@pytest.mark.parametrize(
    "name", ["X-Plain", "Authorization-Kind", "Key", "Keyed", "Token", "Accept"]
)
def test_other_header(name: str) -> None:
    assert not is_secret_header(name)


def test_literal_secrets_of_an_http_call_are_redacted_and_references_stay() -> None:
    target = {
        "http": {
            "url": "https://shop:p%40ss@shop.example:8443/a@b?c=d@e",
            "headers": {"Authorization": "Bearer x", "X-Api-Key": REFERENCE, "X-Plain": "plain"},
            "userinfo": {"user": "literal", "password": REFERENCE},
            "json": {"headers": {"Authorization": "in a body"}},
        }
    }

    redacted = redact_target(target)

    assert redacted["http"] == {
        **target["http"],
        "url": "https://***@shop.example:8443/a@b?c=d@e",
        "headers": {"Authorization": "***", "X-Api-Key": REFERENCE, "X-Plain": "plain"},
        "userinfo": {"user": "***", "password": REFERENCE},
    }
    assert redact_target(redacted) == redacted
    assert restore_literals(redacted, target, "target") == target


def test_literal_secrets_of_an_amqp_message_are_redacted() -> None:
    target = {"amqp": {"exchange": "jobs", "headers": {"x-token": 5, "a-token": True, "n": 5}}}

    redacted = redact_target(target)

    assert redacted["amqp"]["headers"] == {"x-token": "***", "a-token": "***", "n": 5}
    assert restore_literals(redacted, target, "target") == target


@pytest.mark.parametrize(
    "target",
    [
        {"http": {"url": URL, "headers": {"X": "y"}}},
        {"http": {"url": "https://@shop.example/"}},
        {"http": {"url": f"{URL}?mail=a@b"}},
        {"task": {"name": "t", "args": {"headers": {"Authorization": "x"}}}},
        {"http": {"url": 5, "headers": ["a"], "userinfo": "b"}},
        {"http": "no object"},
        ["no object"],
        None,
    ],
)
def test_target_without_literal_secrets_is_unchanged(target: Any) -> None:
    assert redact_target(target) is target
    refuse_redacted(target, "target")


def test_refusal_names_the_redacted_field() -> None:
    target = {"http": {"url": URL, "headers": {"X-Plain": "***", "Cookie": "***"}}}

    with pytest.raises(InvalidInput) as failed:
        refuse_redacted(target, "target")

    assert (failed.value.code, failed.value.field) == (
        "redacted_value",
        "target.http.headers.Cookie",
    )


@pytest.mark.parametrize(
    "original",
    [
        None,
        {"http": {"url": URL}},
        {"http": {"url": URL, "headers": {"Cookie": REFERENCE}}},
        {"http": {"url": URL, "headers": {"Cookie": "***"}}},
    ],
)
def test_redacted_value_without_an_original_is_rejected(original: Any) -> None:
    target = {"http": {"url": URL, "headers": {"Cookie": "***"}}}

    with pytest.raises(InvalidInput) as failed:
        restore_literals(target, original, "target")

    assert (failed.value.code, failed.value.field) == (
        "redacted_value",
        "target.http.headers.Cookie",
    )


def test_new_values_of_an_edit_stay() -> None:
    original = {"http": {"url": URL, "headers": {"Cookie": "old", "X-Key": "kept"}}}
    edit = {"http": {"url": URL, "headers": {"Cookie": "new", "X-Key": "***"}}}

    assert literals_of(restore_literals(edit, original, "target")) == {
        "http.headers.Cookie": "new",
        "http.headers.X-Key": "kept",
    }


def test_definition_without_a_target_stays() -> None:
    assert redact_definition({"key": "k"}) == {"key": "k"}


@pytest.mark.parametrize(
    ("body", "redacted"),
    [
        (b'{"Authorization": "Bearer x"}', b'{"Authorization": "***"}'),
        (b'{"x-api-key":"a\\"b","n":"c"}', b'{"x-api-key":"***","n":"c"}'),
        (b'{"url":"https://u:p@h.example/a"}', b'{"url":"https://***@h.example/a"}'),
        (b'{"Cookie": "cut', b'{"Cookie": "***'),
        (b'{"password":"p", broken', b'{"password":"***", broken'),
        (b"\xff\xfe", b"\xff\xfe"),
    ],
)
def test_bytes_are_redacted_without_a_parser(body: bytes, redacted: bytes) -> None:
    assert redact_bytes(body) == redacted
    assert redact_bytes(redacted) == redacted


@pytest.mark.parametrize(
    "call",
    [
        {"headers": {"Authorization": ["s3cret"]}},
        {"headers": {"Authorization": "s3cret\n"}},
        {"headers": {"X-Api-Key": {"secret": "s3cret value"}}},
        {"headers": "Authorization: s3cret"},
        {"userinfo": {"user": "s3cret:", "password": "s3cret"}},
        {"userinfo": {"password": 5, "user": ["s3cret"]}},
        {"userinfo": "s3cret"},
        {"url": "ftp://u:s3cret@h.example/"},
    ],
)
def test_error_does_not_quote_a_literal_secret(call: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput) as failed:
        parse(Definition, {"when": {"now": True}, "target": {"http": {"url": URL, **call}}})

    assert failed.value.field is not None
    assert "s3cret" not in failed.value.reason


@pytest.mark.parametrize(
    "call",
    [
        {"userinfo": {"user": "a"}, "headers": {"authorization": "b"}},
        {"userinfo": {"user": "a"}, "url": "https://c:d@shop.example/"},
        {"headers": {"Authorization": "b"}, "url": "https://c@shop.example/"},
        {"url": "https://c%3Ad:e@shop.example/"},
        {"url": "https://c:%E9@shop.example?to=/"},
    ],
)
def test_request_has_at_most_one_user_which_utf_8_can_express(call: dict[str, Any]) -> None:
    accepted = {"when": {"now": True}, "target": {"http": {"url": URL, "userinfo": {"user": "a"}}}}
    assert parse(Definition, accepted).to_json()["target"] == accepted["target"]

    with pytest.raises(InvalidInput) as failed:
        parse(Definition, {"when": {"now": True}, "target": {"http": {"url": URL, **call}}})

    assert failed.value.code == "invalid_userinfo"
