"""Secrets in targets: refused values, warnings and the policy of a tenant."""

from typing import Any

import pytest
from pydantic import TypeAdapter

from harebell.contract.errors import Rejected
from harebell.contract.target import Target
from harebell.domain.target_check import check_edited_secrets, check_secrets, literal_warnings

pytestmark = pytest.mark.requirement("P7")

URL = "https://shop.example/hook"
REFERENCE = {"secret": "token"}
PLAIN = {"http": {"url": URL, "headers": {"X-Plain": "y", "Cookie": REFERENCE}}}
LITERAL = {"http": {"url": URL, "headers": {"Cookie": "literal"}}}


def target(value: dict[str, Any]) -> Target:
    return TypeAdapter[Target](Target).validate_python(value)


@pytest.mark.parametrize("allows_literals", [True, False])
def test_references_are_accepted_without_a_warning(*, allows_literals: bool) -> None:
    for value in (
        PLAIN,
        {"amqp": {"exchange": "jobs", "headers": {"auth-token": REFERENCE}}},
        {"task": {"name": "t", "args": {"a": [REFERENCE], "secret": 5}}},
    ):
        check_secrets(target(value), "target", allows_literals=allows_literals)
        assert literal_warnings(target(value)) is None


def test_literal_secret_causes_a_warning_without_its_value() -> None:
    check_secrets(target(LITERAL), "target")

    [warning] = literal_warnings(target(LITERAL)) or []
    assert "target.http.headers.Cookie" in warning
    assert '"literal"' not in warning


def test_policy_refuses_a_literal_secret() -> None:
    with pytest.raises(Rejected) as failed:
        check_secrets(target(LITERAL), "target", allows_literals=False)

    assert (failed.value.code, failed.value.field) == ("not_allowed", "target.http.headers.Cookie")


@pytest.mark.parametrize(
    ("value", "field"),
    [
        ({"http": {"url": URL, "headers": {"Cookie": "***"}}}, "http.headers.Cookie"),
        ({"http": {"url": "https://***@shop.example/"}}, "http.url"),
        ({"http": {"url": URL, "userinfo": {"user": "***"}}}, "http.userinfo.user"),
        (
            {"amqp": {"exchange": "jobs", "headers": {"auth-token": "***"}}},
            "amqp.headers.auth-token",
        ),
    ],
)
def test_redacted_value_is_refused(value: dict[str, Any], field: str) -> None:
    with pytest.raises(Rejected) as failed:
        check_secrets(target(value), "target")

    assert (failed.value.code, failed.value.field) == ("redacted_value", f"target.{field}")


@pytest.mark.parametrize("name", [5, None, "../other", ""])
def test_argument_that_names_no_secret_is_refused(name: object) -> None:
    value = {"task": {"name": "t", "args": {"a": [{"b": {"secret": name}}]}}}

    with pytest.raises(Rejected) as failed:
        check_secrets(target(value), "target")

    assert failed.value.field == "target.task.args.a[0].b"


def test_edit_may_keep_a_stored_secret_but_add_none_against_the_policy() -> None:
    kept = {"http": {"url": URL, "headers": {"Cookie": "***"}}}

    check_edited_secrets(target(kept), allows=False)
    check_edited_secrets(target(LITERAL), allows=True)
    with pytest.raises(Rejected) as failed:
        check_edited_secrets(target(LITERAL), allows=False)

    assert (failed.value.code, failed.value.field) == ("not_allowed", "target.http.headers.Cookie")
