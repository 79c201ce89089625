"""Failures have one fingerprint if they differ only in values that vary between failures."""

import string
from random import Random
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harebell.dlq_inspector.model.fingerprint import (
    MAX_MESSAGE_LENGTH,
    fingerprint,
    normalise_message,
    target_name,
)

ANY_TEXT = st.text(alphabet=st.characters(codec="utf-8"), max_size=2_000)
HOOK = {"target": {"http": {"url": "https://acme.example/report/17", "method": "GET"}}}


def group_of(tenant: str, payload: dict[str, Any], error_code: str, error: str) -> UUID:
    return fingerprint(tenant, payload, error_code=error_code, error=error).group_id


@pytest.mark.requirement("ASK-25")
@pytest.mark.parametrize(
    ("message", "normal"),
    [
        ("503 Service Unavailable", "<n> Service Unavailable"),
        ("timed out after 30.5 s", "timed out after <n> s"),
        ("no order 6f0a7c0e-3d2b-5b53-9c1e-4d7a0f2b8e11", "no order <uuid>"),
        ("at 0x7f3a, commit 4d7a0f2b8e11", "at <n>, commit <n>"),
        ("since 2026-11-27T12:00:00.5Z", "since <time>"),
        ("after 15ms or 1500ms or 1.5s", "after <n>ms or <n>ms or <n>s"),
        ("request req_8f3kQ2zX failed", "request <n> failed"),
        ("id=V1StGXR8_Z5jdHi6B-myT", "id=<n>"),
        ("ray kQzXbWpLmN", "ray <n>"),
        ("pod order-service-7f9c4d5b6-x2k9p is gone", "pod order-service-<n> is gone"),
        ("order-17-eu", "order-<n>-eu"),
        ("v2 of read_timeout_ms", "v<n> of read_timeout_ms"),
        ("ReadTimeoutError in HTTPSConnectionPool", "ReadTimeoutError in HTTPSConnectionPool"),
        ("-x_ --flag pre-commit", "-x_ --flag pre-commit"),
        ("no column 'age' in \"users\"", "no column <text> in <text>"),
        ("can't reach it", "can't reach it"),
        ("GET https://acme.example/a/17?b=2: refused", "GET https://acme.example:443 refused"),
        ("two\n  lines", "two lines"),
        ("deadbeef is no number, accept effaced", "deadbeef is no number, accept effaced"),
    ],
)
def test_normalise_message_replaces_the_varying_parts(message: str, normal: str) -> None:
    assert normalise_message(message) == normal


@given(ANY_TEXT)
def test_normalised_message_is_bounded_and_has_no_digits(text: str) -> None:
    normal = normalise_message(text)

    assert len(normal) <= MAX_MESSAGE_LENGTH
    assert "://" in normal or not set(string.digits) & set(normal)


@pytest.mark.requirement("ASK-25")
@given(st.integers(min_value=0), st.integers(min_value=0))
def test_failures_have_one_group_if_they_differ_in_a_number(one: int, other: int) -> None:
    groups = {
        group_of("acme", HOOK, "http_503", f"order {number} was refused") for number in (one, other)
    }

    assert len(groups) == 1


@pytest.mark.requirement("ASK-25")
@pytest.mark.parametrize(
    ("alphabet", "length"),
    [
        ("0123456789abcdef", 16),
        ("0123456789abcdef", 32),
        (string.ascii_lowercase + string.digits, 20),
        (string.ascii_letters + string.digits, 20),
        (string.ascii_letters + string.digits + "-_", 32),
        ("0123456789ABCDEFGHJKMNPQRSTVWXYZ", 26),
    ],
)
@pytest.mark.parametrize("text", ["request {} failed", "failed (req_{})", "id={}, try later"])
def test_failures_have_one_group_if_they_differ_in_a_random_id(
    text: str, alphabet: str, length: int
) -> None:
    source = Random(7)  # noqa: S311  # equal ids in each run
    ids = ["".join(source.choices(alphabet, k=length)) for _ in range(8)]

    groups = {group_of("acme", HOOK, "http_503", text.format(each)) for each in ids}

    assert len(groups) == 1


@pytest.mark.parametrize(
    "other",
    [
        ("other", HOOK, "http_503", "refused"),
        ("acme", {"target": {"task": {"name": "report"}}}, "http_503", "refused"),
        ("acme", HOOK, "http_500", "refused"),
        ("acme", HOOK, "http_503", "reset"),
    ],
)
def test_failures_have_two_groups_if_tenant_target_code_or_message_differs(
    other: tuple[str, dict[str, object], str, str],
) -> None:
    groups = {group_of("acme", HOOK, "http_503", "refused"), group_of(*other)}

    assert len(groups) == 2


@pytest.mark.parametrize(
    ("target", "name"),
    [
        ({"http": {"url": "https://acme.example:8443/a?b"}}, "http POST acme.example:8443"),
        ({"http": {"url": "https://acme.example", "method": "GET"}}, "http GET acme.example:443"),
        ({"amqp": {"exchange": "acme", "routing_key": "report.17"}}, "amqp acme report.<n>"),
        ({"amqp": {"exchange": "acme"}}, "amqp acme"),
        ({"task": {"name": "acme.report", "args": {"n": 17}}}, "task acme.report"),
        ({"of a later version": 1}, "target of a later version"),
    ],
)
def test_target_name_omits_the_varying_parts(target: dict[str, object], name: str) -> None:
    assert target_name(target) == name


def test_fingerprint_of_a_message_has_its_queue_as_the_target() -> None:
    payload = {"queue": "harebell.intake"}

    found = fingerprint("acme", payload, error_code="not_json", error=None)

    assert found.target == "queue harebell.intake"
