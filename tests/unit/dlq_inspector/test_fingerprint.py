"""Failures are the same when they differ only in what differs each time."""

import string
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harebell.dlq_inspector.model.fingerprint import (
    MAX_MESSAGE,
    fingerprint,
    named_target,
    normal_message,
)

ANY_TEXT = st.text(alphabet=st.characters(codec="utf-8"), max_size=2_000)
HOOK = {"target": {"http": {"url": "https://acme.example/report/17", "method": "GET"}}}


@pytest.mark.requirement("ASK-25")
@pytest.mark.parametrize(
    ("message", "normal"),
    [
        ("503 Service Unavailable", "<n> Service Unavailable"),
        ("timed out after 30.5 s", "timed out after <n> s"),
        ("no order 6f0a7c0e-3d2b-5b53-9c1e-4d7a0f2b8e11", "no order <uuid>"),
        ("at 0x7f3a, commit 4d7a0f2b8e11", "at <hex>, commit <hex>"),
        ("no column 'age' in \"users\"", "no column <text> in <text>"),
        ("can't reach it", "can't reach it"),
        ("GET https://acme.example/a/17?b=2: refused", "GET https://acme.example refused"),
        ("two\n  lines", "two lines"),
        ("deadbeef is no number, accept effaced", "deadbeef is no number, accept effaced"),
    ],
)
def test_what_differs_from_failure_to_failure_is_taken_out(message: str, normal: str) -> None:
    assert normal_message(message) == normal


@given(ANY_TEXT)
def test_any_error_has_a_normal_message_of_bounded_length_and_without_digits(text: str) -> None:
    normal = normal_message(text)

    assert len(normal) <= MAX_MESSAGE
    assert "://" in normal or not set(string.digits) & set(normal)


@pytest.mark.requirement("ASK-25")
@given(st.integers(min_value=0), st.integers(min_value=0))
def test_failures_that_differ_in_a_number_are_of_one_group(one: int, other: int) -> None:
    groups = {
        fingerprint("acme", HOOK, "http_503", f"order {number} was refused").group
        for number in (one, other)
    }

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
def test_another_tenant_target_code_or_message_is_another_group(
    other: tuple[str, dict[str, object], str, str],
) -> None:
    groups: set[UUID] = {
        fingerprint("acme", HOOK, "http_503", "refused").group,
        fingerprint(*other).group,
    }

    assert len(groups) == 2


@pytest.mark.parametrize(
    ("target", "name"),
    [
        ({"http": {"url": "https://acme.example:8443/a?b"}}, "http POST https://acme.example"),
        ({"http": {"url": "https://[bad", "method": "GET"}}, "http GET <url>"),
        ({"amqp": {"exchange": "jobs", "routing_key": "report.17"}}, "amqp jobs report.<n>"),
        ({"amqp": {"exchange": "jobs"}}, "amqp jobs"),
        ({"task": {"name": "acme.report", "args": {"n": 17}}}, "task acme.report"),
        ({"of a later version": 1}, "target of a later version"),
    ],
)
def test_a_target_is_called_by_what_does_not_differ(target: dict[str, object], name: str) -> None:
    assert named_target(target) == name


def test_a_message_is_told_by_the_queue_that_it_died_in() -> None:
    assert fingerprint("acme", {"queue": "harebell.intake"}, "not_json", None).target == (
        "queue harebell.intake"
    )
