"""The names of downstreams, which breakers and rate limits use."""

from typing import Any

import pytest
from pydantic import TypeAdapter

from harebell.contract.downstream import (
    MAX_DOWNSTREAM,
    UNKNOWN_DOWNSTREAM,
    downstream_of,
    downstream_of_json,
)
from harebell.contract.target import Target

TARGET: TypeAdapter[Target] = TypeAdapter(Target)


@pytest.mark.requirement("S113")
@pytest.mark.parametrize(
    ("target", "expected"),
    [
        ({"http": {"url": "https://acme.example/a?b=c"}}, "http:acme.example"),
        ({"http": {"url": "http://acme.example"}}, "http:acme.example"),
        ({"http": {"url": "https://Acme.Example:443/"}}, "http:acme.example"),
        ({"http": {"url": "http://acme.example:80?x=/@b"}}, "http:acme.example"),
        ({"http": {"url": "https://acme.example:80/"}}, "http:acme.example:80"),
        ({"http": {"url": "https://acme.example:8443/"}}, "http:acme.example:8443"),
        ({"http": {"url": "https://me:secret@acme.example/"}}, "http:acme.example"),
        ({"http": {"url": "http://[::1]:8080/x"}}, "http:[::1]:8080"),
        ({"http": {"url": "http://acme.example#of"}}, "http:acme.example"),
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


def test_downstream_is_truncated_to_its_maximum_length() -> None:
    assert len(downstream_of_json({"http": {"url": "http://" + "a" * 2000}})) == MAX_DOWNSTREAM
