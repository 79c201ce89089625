"""Secrets of an attempt: the resolution of references, and the excerpts of outcomes."""

import base64
import html
import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from harebell.contract.errors import SecretMissing
from harebell.contract.message import parse
from harebell.contract.target import AmqpTarget, HttpTarget, Target, TaskTarget
from harebell.domain.retry import Failure
from harebell.executor.model.completion import is_healthy
from harebell.executor.targets.attempt import Success
from harebell.executor.targets.secret_values import SecretResolver, UsedSecrets, shorten
from harebell.runtime.secret_files import SecretFiles

SENT = "t0p-s3cret/value"
URL = "https://shop.example/hook"
REFERENCE = {"secret": "token"}


@pytest.fixture
def resolver(tmp_path: Path) -> SecretResolver:
    (tmp_path / "acme").mkdir()
    (tmp_path / "acme" / "token").write_text(SENT + "\n")
    (tmp_path / "acme" / "lines").write_text("first line\nsecond line\n")
    (tmp_path / "acme" / "bytes").write_bytes(b"\xff\xfe")
    (tmp_path / "acme" / "colon").write_text("a:b")
    (tmp_path / "acme" / "hmac-key").write_text("whsec_" + "QUJD" * 10)
    (tmp_path / "acme" / "private-key").write_text("whsk_" + "QUJD" * 11)
    return SecretResolver(SecretFiles(tmp_path))


def http(**call: Any) -> HttpTarget:
    return parse(HttpTarget, {"http": {"url": URL, **call}})


def test_header_of_http_call_contains_the_secret(resolver: SecretResolver) -> None:
    target = http(headers={"X-Any": REFERENCE, "Plain": "text"})

    resolved, used = resolver.resolve(target, "acme")

    assert isinstance(resolved, HttpTarget)
    assert resolved.http.headers == {"X-Any": SENT, "Plain": "text"}
    assert used is not None
    assert SENT not in str(target)


def test_userinfo_becomes_basic_authentication(resolver: SecretResolver) -> None:
    target = http(userinfo={"user": "shop", "password": REFERENCE}, headers={"A": "b"})

    resolved, used = resolver.resolve(target, "acme")

    expected = base64.b64encode(f"shop:{SENT}".encode()).decode()
    assert isinstance(resolved, HttpTarget)
    assert resolved.http.headers == {"A": "b", "Authorization": f"Basic {expected}"}
    assert used is not None
    assert used.shorten(f"{expected} {SENT}") == "*** ***"


def test_header_of_amqp_message_contains_the_secret(resolver: SecretResolver) -> None:
    amqp = {"exchange": "acme.jobs", "headers": {"token": REFERENCE, "n": 3}}

    resolved, used = resolver.resolve(parse(AmqpTarget, {"amqp": amqp}), "acme")

    assert isinstance(resolved, AmqpTarget)
    assert resolved.amqp.headers == {"token": SENT, "n": 3}
    assert used is not None


def test_arguments_of_a_task_contain_secrets_at_any_depth(resolver: SecretResolver) -> None:
    args = {"a": [{"b": REFERENCE}], "c": {"secret": 5}, "d": {"secret": "token", "e": 1}}
    args["pem"] = {"secret": "lines"}

    resolved, used = resolver.resolve(
        parse(TaskTarget, {"task": {"name": "t", "args": args}}), "acme"
    )

    assert isinstance(resolved, TaskTarget)
    assert resolved.task.args == {
        **args,
        "a": [{"b": SENT}],
        "pem": "first line\nsecond line",
    }
    assert used is not None


@pytest.mark.parametrize(
    "target",
    [
        {"http": {"url": URL, "headers": {"X": "y"}}},
        {"http": {"url": URL, "json": {"secret": "token"}}},
        {"amqp": {"exchange": "acme.jobs", "headers": {"n": 1}}},
        {"task": {"name": "t", "args": {"day": "monday"}}},
    ],
)
def test_target_without_secrets_is_unchanged_and_has_none(
    resolver: SecretResolver, target: dict[str, Any]
) -> None:
    parsed = TypeAdapter[Target](Target).validate_python(target)

    assert resolver.resolve(parsed, "acme") == (parsed, None)


def test_secret_of_another_tenant_is_missing(resolver: SecretResolver) -> None:
    with pytest.raises(SecretMissing) as failed:
        resolver.resolve(http(headers={"X": REFERENCE}), "umbrella")

    assert failed.value.code == "secret_missing"
    assert "'token'" in failed.value.reason


@pytest.mark.parametrize("name", ["lines", "bytes"])
def test_secret_that_no_header_can_contain_is_invalid(resolver: SecretResolver, name: str) -> None:
    with pytest.raises(SecretMissing) as failed:
        resolver.resolve(http(headers={"X": {"secret": name}}), "acme")

    assert failed.value.code == "secret_invalid"
    assert "line\n" not in failed.value.reason


@pytest.mark.parametrize("name", ["hmac-key", "private-key"])
@pytest.mark.parametrize("place", ["header", "argument"])
def test_no_call_contains_a_signing_key(resolver: SecretResolver, name: str, place: str) -> None:
    reference = {"secret": name}
    call = {"task": {"name": "remind", "args": {"key": reference}}}
    target = http(headers={"X": reference}) if place == "header" else parse(TaskTarget, call)

    with pytest.raises(SecretMissing) as failed:
        resolver.resolve(target, "acme")

    assert failed.value.code == "secret_invalid"
    assert "QUJD" not in failed.value.reason


def test_user_with_a_colon_is_invalid(resolver: SecretResolver) -> None:
    with pytest.raises(SecretMissing) as failed:
        resolver.resolve(http(userinfo={"user": {"secret": "colon"}}), "acme")

    assert failed.value.code == "secret_invalid"


def test_literal_secrets_count_too(resolver: SecretResolver) -> None:
    target = http(
        headers={"Authorization": "Bearer literal-1", "x-api-KEY": "literal-2", "A": "bc"}
    )
    _, used = resolver.resolve(target, "acme")
    assert used is not None
    assert used.shorten("bc") == "bc"
    assert used.shorten("literal-1, literal-2") == "***,…"
    _, used = resolver.resolve(
        parse(HttpTarget, {"http": {"url": "https://u:literal-3@h.example/"}}), "acme"
    )

    assert used is not None
    assert used.shorten("literal-3") == "***"


ENCODINGS: list[Callable[[str], str]] = [
    str,
    str.upper,
    quote,
    html.escape,
    json.dumps,
    repr,
    lambda text: json.dumps(text).replace("/", "\\/"),  # as PHP writes it
    lambda text: text.encode().hex(),
    lambda text: base64.b64encode(text.encode()).decode(),
    lambda text: base64.b32encode(text.encode()).decode(),
    lambda text: "".join(f"&#{ord(letter)};" for letter in text),
    lambda text: text[::-1],
    " ".join,
]


@given(
    secret=st.text(min_size=2, max_size=300),
    encode=st.sampled_from(ENCODINGS),
    before=st.text(max_size=80),
    after=st.text(max_size=80),
)
def test_no_excerpt_contains_a_secret_in_any_encoding(
    secret: str, encode: Callable[[str], str], before: str, after: str
) -> None:
    with suppress(UnicodeEncodeError):
        shown = UsedSecrets([secret]).shorten(before + encode(secret) + after)

        rest = shown.removesuffix("…").replace("***", "")
        assert len(rest) <= len(secret) // 2 or rest == before + after
        assert encode(secret) not in rest


def test_outcome_keeps_its_other_fields_and_its_own_text() -> None:
    change = UsedSecrets([SENT]).shorten

    assert shorten(Success(200, f"{SENT} was sent"), change) == Success(200, "*** was …")
    assert shorten(Success(204), change) == Success(204)
    failure = Failure("http_429", f"HTTP 429: {SENT}", http_status=429, own=10)
    assert shorten(failure, change) == Failure("http_429", "HTTP 429: ***", http_status=429)
    unknown = replace(failure, message="HTTP 429: gone", own=0)
    assert shorten(unknown, change) == replace(unknown, message="HTTP 429…")


def test_secret_without_a_value_leaves_nothing() -> None:
    assert UsedSecrets([""]).shorten("abc") == "abc"
    assert UsedSecrets(["x"]).shorten("abc") == "…"


def test_missing_secret_says_nothing_about_the_downstream() -> None:
    assert is_healthy(Failure("secret_missing", "missing")) is None
    assert is_healthy(Failure("secret_invalid", "invalid")) is None
    assert is_healthy(Failure("connect_failed", "refused")) is False
