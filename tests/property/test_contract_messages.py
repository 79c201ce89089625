"""Messages keep what they carry, from one service's bytes to the next one's values."""

import base64
from typing import Any, Final

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.property.contract_values import definitions, json_values, targets, texts, tickets

from harebell.contract import json_codec
from harebell.contract.message import parse
from harebell.contract.policy import Overlap
from harebell.contract.schedule import Definition
from harebell.contract.target import HttpCall, Target
from harebell.contract.ticket import TICKET_BATCH, RunSpec, Ticket

URL: Final = "https://acme.example/hook"
DEFAULTS: Final[dict[str, Any]] = {
    "key": None,
    "name": None,
    "owner": None,
    "class": "normal",
    "priority": 5,
    "pool": "default",
    "timeout": "30s",
    "expires_after": None,
    "retry": {
        "max_attempts": 5,
        "backoff": {"base": "1s", "factor": 2, "cap": "5m", "jitter": "full"},
    },
    "overlap": "allow",
    "limit": None,
    "catch_up": {"mode": "one", "window": "1h", "max": 100},
    "on_unknown": "retry",
    "tags": [],
    "metadata": {},
}


@given(st.lists(tickets, max_size=3))
def test_a_bundle_is_the_same_on_the_other_side(written: list[dict[str, Any]]) -> None:
    bundle = [parse(Ticket, ticket) for ticket in written]

    assert json_codec.decode_model(TICKET_BATCH, json_codec.encode_all(bundle)) == bundle
    assert [
        parse(Ticket, item) for item in json_codec.decode(json_codec.encode_all(bundle))
    ] == bundle


@pytest.mark.requirement("S16")
@given(json_values)
def test_a_json_payload_comes_back_equal(value: Any) -> None:
    call = parse(HttpCall, {"url": URL, "json": value})

    again = parse(HttpCall, json_codec.decode(json_codec.encode(call)))

    assert orjson.loads(again.body() or b"") == value
    assert again.body() == call.body()


@pytest.mark.requirement("S16")
@given(texts)
def test_a_text_payload_comes_back_byte_for_byte(text: str) -> None:
    call = parse(HttpCall, {"url": URL, "text": text})

    again = parse(HttpCall, json_codec.decode(json_codec.encode(call)))

    assert again.body() == text.encode()


@pytest.mark.requirement("S16")
@given(st.binary(max_size=256))
def test_a_binary_payload_comes_back_byte_for_byte(data: bytes) -> None:
    call = parse(HttpCall, {"url": URL, "base64": base64.b64encode(data).decode()})

    again = parse(HttpCall, json_codec.decode(json_codec.encode(call)))

    assert again.body() == data


@given(definitions())
def test_a_definition_is_the_same_when_it_has_been_stored(written: dict[str, Any]) -> None:
    definition = parse(Definition, written)

    again = parse(Definition, json_codec.decode(json_codec.encode(definition)))

    assert again == definition
    assert again.fingerprint() == definition.fingerprint()


@given(definitions(), st.sets(st.sampled_from(sorted(DEFAULTS))))
def test_a_default_that_is_written_out_counts_as_left_out(
    written: dict[str, Any], shown: set[str]
) -> None:
    longer = {**{name: DEFAULTS[name] for name in shown}, **written}

    assert parse(Definition, longer).fingerprint() == parse(Definition, written).fingerprint()


@given(definitions(), targets)
def test_another_target_has_another_fingerprint(
    written: dict[str, Any], other: dict[str, Any]
) -> None:
    first = parse(Definition, written)
    second = parse(Definition, {**written, "target": other})

    same = canonical(first.target) == canonical(second.target)
    assert (first.fingerprint() == second.fingerprint()) is same


def canonical(target: Target) -> bytes:
    return orjson.dumps(orjson.loads(json_codec.encode(target)), option=orjson.OPT_SORT_KEYS)


@given(definitions())
def test_work_says_what_its_definition_says(written: dict[str, Any]) -> None:
    definition = parse(Definition, written)

    work = parse(RunSpec, RunSpec.from_definition("acme", definition.to_json()))

    assert (work.tenant, work.key, work.target) == ("acme", definition.key, definition.target)
    assert (work.timeout, work.retry) == (definition.timeout, definition.retry)
    assert (work.class_, work.on_unknown) == (definition.class_, definition.on_unknown)
    assert (work.overlap or Overlap.ALLOW, work.rate_limit) == (
        definition.overlap,
        definition.rate_limit,
    )


@given(definitions())
def test_a_definition_is_stored_and_shown_as_what_it_is(written: dict[str, Any]) -> None:
    definition = parse(Definition, written)

    assert parse(Definition, definition.to_json()) == definition
    assert parse(Definition, definition.to_full_json()) == definition
