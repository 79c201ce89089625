"""Secrets of an attempt: the resolution of references, and the masks of outcomes."""

import base64
from pathlib import Path
from typing import Any

import pytest
from pydantic import TypeAdapter

from harebell.contract.errors import SecretMissing
from harebell.contract.message import parse
from harebell.contract.target import AmqpTarget, HttpTarget, Target, TaskTarget
from harebell.domain.retry import Failure
from harebell.executor.model.completion import is_healthy
from harebell.executor.targets.attempt import MAX_EXCERPT, Success, excerpt
from harebell.executor.targets.secret_values import SecretMask, SecretResolver
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

    resolved, mask = resolver.resolve(target, "acme")

    assert isinstance(resolved, HttpTarget)
    assert resolved.http.headers == {"X-Any": SENT, "Plain": "text"}
    assert mask is not None
    assert SENT not in str(target)


def test_userinfo_becomes_basic_authentication(resolver: SecretResolver) -> None:
    target = http(userinfo={"user": "shop", "password": REFERENCE}, headers={"A": "b"})

    resolved, mask = resolver.resolve(target, "acme")

    expected = base64.b64encode(f"shop:{SENT}".encode()).decode()
    assert isinstance(resolved, HttpTarget)
    assert resolved.http.headers == {"A": "b", "Authorization": f"Basic {expected}"}
    assert mask is not None
    assert mask.mask(f"got {expected} and {SENT}") == "got *** and ***"


def test_header_of_amqp_message_contains_the_secret(resolver: SecretResolver) -> None:
    amqp = {"exchange": "acme.jobs", "headers": {"token": REFERENCE, "n": 3}}

    resolved, mask = resolver.resolve(parse(AmqpTarget, {"amqp": amqp}), "acme")

    assert isinstance(resolved, AmqpTarget)
    assert resolved.amqp.headers == {"token": SENT, "n": 3}
    assert mask is not None


def test_arguments_of_a_task_contain_secrets_at_any_depth(resolver: SecretResolver) -> None:
    args = {"a": [{"b": REFERENCE}], "c": {"secret": 5}, "d": {"secret": "token", "e": 1}}
    args["pem"] = {"secret": "lines"}

    resolved, mask = resolver.resolve(
        parse(TaskTarget, {"task": {"name": "t", "args": args}}), "acme"
    )

    assert isinstance(resolved, TaskTarget)
    assert resolved.task.args == {
        **args,
        "a": [{"b": SENT}],
        "pem": "first line\nsecond line",
    }
    assert mask is not None
    assert mask.mask("the second line failed") == "the *** failed"


@pytest.mark.parametrize(
    "target",
    [
        {"http": {"url": URL, "headers": {"X": "y"}}},
        {"http": {"url": URL, "json": {"secret": "token"}}},
        {"amqp": {"exchange": "acme.jobs", "headers": {"n": 1}}},
        {"task": {"name": "t", "args": {"day": "monday"}}},
    ],
)
def test_target_without_secrets_is_unchanged_and_has_no_mask(
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


def test_literal_secrets_are_masked_too(resolver: SecretResolver) -> None:
    target = http(
        headers={"Authorization": "Bearer literal-1", "x-api-KEY": "literal-2", "A": "bc"}
    )
    _, mask = resolver.resolve(target, "acme")
    assert mask is not None
    assert mask.mask("literal-1, literal-2, bc") == "***, ***, bc"
    _, mask = resolver.resolve(
        parse(HttpTarget, {"http": {"url": "https://u:literal-3@h.example/"}}), "acme"
    )

    assert mask is not None
    assert mask.mask("https://u:literal-3@h.example/ literal-3") == "https://***@h.example/ ***"


@pytest.mark.parametrize(
    ("secret", "sent_back"),
    [
        ('quote"back\\slash', '{"header":"quote\\"back\\\\slash"}'),
        ("umlaut-ä", '"umlaut-\\u00e4"'),
        ("a b/c", "?q=a%20b%2Fc"),
        ("it's", 'KeyError: "it\'s"'),
        ("two\nlines", "ValueError('two\\nlines')"),
        ("abc", "xabcabcx"),
    ],
)
def test_mask_finds_the_forms_in_which_a_target_sends_a_secret_back(
    secret: str, sent_back: str
) -> None:
    masked = SecretMask([secret]).mask(sent_back)

    assert "***" in masked
    assert secret not in masked
    assert SecretMask([secret]).mask(masked) == masked


@pytest.mark.parametrize("kept", [1, 5, len(SENT) - 1])
def test_secret_at_the_end_of_an_excerpt_is_masked(kept: int) -> None:
    cut = excerpt("x" * (MAX_EXCERPT - kept) + SENT)

    outcome = SecretMask([SENT]).apply(Failure("http_500", cut))

    assert isinstance(outcome, Failure)
    assert outcome.message.rstrip("*") == "x" * (MAX_EXCERPT - kept)


def test_outcome_keeps_its_other_fields() -> None:
    mask = SecretMask([SENT, "s"])

    assert mask.apply(Success(200, f"was {SENT}")) == Success(200, "wa*** ***")
    assert mask.apply(Success(204)) == Success(204)
    failure = Failure("http_429", f"HTTP: {SENT}", http_status=429)
    assert mask.apply(failure) == Failure("http_429", "HTTP: ***", http_status=429)


def test_missing_secret_says_nothing_about_the_downstream() -> None:
    assert is_healthy(Failure("secret_missing", "missing")) is None
    assert is_healthy(Failure("secret_invalid", "invalid")) is None
    assert is_healthy(Failure("connect_failed", "refused")) is False
