"""The names of downstreams, which breakers and rate limits use."""

from typing import Any

import pytest
from pydantic import TypeAdapter

from harebell.contract.downstream import (
    MAX_DOWNSTREAM,
    UNKNOWN_DOWNSTREAM,
    current_name,
    downstream_of,
    downstream_of_json,
    is_downstream_name,
)
from harebell.contract.target import Target

TARGET: TypeAdapter[Target] = TypeAdapter(Target)


@pytest.mark.requirement("S113")
@pytest.mark.parametrize(
    ("target", "expected"),
    [
        ({"http": {"url": "https://acme.example/a?b=c"}}, "acme.example:443"),
        ({"http": {"url": "http://acme.example"}}, "acme.example:80"),
        ({"http": {"url": "https://Acme.Example:443/"}}, "acme.example:443"),
        ({"http": {"url": "http://acme.example:80?x=/@b"}}, "acme.example:80"),
        ({"http": {"url": "https://acme.example:80/"}}, "acme.example:80"),
        ({"http": {"url": "https://acme.example:8443/"}}, "acme.example:8443"),
        ({"http": {"url": "https://me:secret@acme.example/"}}, "acme.example:443"),
        ({"http": {"url": "http://[::1]:8080/x"}}, "[::1]:8080"),
        ({"http": {"url": "https://[::1]/x"}}, "[::1]:443"),
        ({"http": {"url": "https://acme.example:/x"}}, "acme.example:443"),
        ({"http": {"url": "http://acme.example#of"}}, "acme.example:80"),
        ({"amqp": {"exchange": "acme.jobs", "routing_key": "report"}}, "amqp:acme.jobs"),
        ({"task": {"name": "acme.report"}}, "task:acme.report"),
    ],
)
def test_downstream_is_the_same_for_all_targets_of_one_system(target: Any, expected: str) -> None:
    assert downstream_of(TARGET.validate_python(target)) == expected
    assert downstream_of_json(target) == expected


@pytest.mark.parametrize(
    "target", [None, 7, {}, [], {"fax": {"number": 1}}, {"http": {}}, {"http": 1}, {"a": 1, "b": 2}]
)
def test_downstream_of_an_unknown_target_is_unknown(target: Any) -> None:
    assert downstream_of_json(target) == UNKNOWN_DOWNSTREAM


def test_downstream_is_truncated_to_its_maximum_length_and_keeps_its_port() -> None:
    name = downstream_of_json({"http": {"url": "https://" + "a" * 2000}})

    assert len(name) == MAX_DOWNSTREAM
    assert name.endswith("a:443")


@pytest.mark.requirement("S113")
@pytest.mark.parametrize(
    ("name", "is_name", "current"),
    [
        ("acme.example:443", True, "acme.example:443"),
        ("[::1]:8080", True, "[::1]:8080"),
        ("amqp:acme.jobs", True, "amqp:acme.jobs"),
        ("task:acme.report", True, "task:acme.report"),
        ("http:acme.example:8443", True, "acme.example:8443"),  # of version 1
        ("http:acme.example", True, None),  # either port
        ("acme.example", False, None),
        ("acme.example:", False, None),
        ("acme.example:70000", False, None),
        ("acme.example:0", False, None),
        ("acme.example:443/hook", False, None),
        ("Acme.Example:443", False, None),
        ("a b:443", False, None),
        (":443", False, None),
        ("task:", False, None),
    ],
)
def test_name_of_a_host_needs_a_port(name: str, *, is_name: bool, current: str | None) -> None:
    assert is_downstream_name(name) == is_name
    if is_name:
        assert current_name(name) == current


@pytest.mark.parametrize("url", ["https://acme.example/x", "http://[::1]/", "http://a.example:81"])
def test_downstream_of_a_target_is_a_valid_name(url: str) -> None:
    name = downstream_of_json({"http": {"url": url}})

    assert is_downstream_name(name)
    assert current_name(name) == name
