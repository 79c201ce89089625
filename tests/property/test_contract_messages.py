"""Messages keep their content through encoding and decoding."""

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
        "backoff": {"base": "1s", "factor": 2, "cap": "5m", "jitter": "additive"},
    },
    "overlap": "allow",
    "rate_limit": None,
    "catch_up": {"mode": "one", "window": "1h", "max": 100},
    "on_unknown": "retry",
    "tags": [],
    "metadata": {},
}


@given(st.lists(tickets, max_size=3))
def test_ticket_batch_is_the_same_after_decoding(items: list[dict[str, Any]]) -> None:
    batch = [parse(Ticket, item) for item in items]

    body = json_codec.encode_all(batch)

    assert json_codec.decode_model(TICKET_BATCH, body) == batch
    assert [parse(Ticket, item) for item in json_codec.decode(body)] == batch


@pytest.mark.requirement("S16")
@given(json_values)
def test_json_payload_is_equal_after_decoding(value: Any) -> None:
    call = parse(HttpCall, {"url": URL, "json": value})

    decoded = parse(HttpCall, json_codec.decode(json_codec.encode(call)))

    assert orjson.loads(decoded.body() or b"") == value
    assert decoded.body() == call.body()


@pytest.mark.requirement("S16")
@given(texts)
def test_text_payload_has_the_same_bytes_after_decoding(text: str) -> None:
    call = parse(HttpCall, {"url": URL, "text": text})

    decoded = parse(HttpCall, json_codec.decode(json_codec.encode(call)))

    assert decoded.body() == text.encode()


@pytest.mark.requirement("S16")
@given(st.binary(max_size=256))
def test_binary_payload_has_the_same_bytes_after_decoding(data: bytes) -> None:
    call = parse(HttpCall, {"url": URL, "base64": base64.b64encode(data).decode()})

    decoded = parse(HttpCall, json_codec.decode(json_codec.encode(call)))

    assert decoded.body() == data


@given(definitions())
def test_definition_is_the_same_after_decoding(fields: dict[str, Any]) -> None:
    definition = parse(Definition, fields)

    decoded = parse(Definition, json_codec.decode(json_codec.encode(definition)))

    assert decoded == definition
    assert decoded.fingerprint() == definition.fingerprint()


@given(definitions(), st.sets(st.sampled_from(sorted(DEFAULTS))))
def test_fingerprint_is_the_same_with_stated_defaults(
    fields: dict[str, Any], stated: set[str]
) -> None:
    longer = {**{name: DEFAULTS[name] for name in stated}, **fields}

    assert parse(Definition, longer).fingerprint() == parse(Definition, fields).fingerprint()


@given(definitions(), targets)
def test_fingerprint_differs_for_another_target(
    fields: dict[str, Any], other: dict[str, Any]
) -> None:
    first = parse(Definition, fields)
    second = parse(Definition, {**fields, "target": other})

    same = canonical(first.target) == canonical(second.target)
    assert (first.fingerprint() == second.fingerprint()) is same


def canonical(target: Target) -> bytes:
    return orjson.dumps(orjson.loads(json_codec.encode(target)), option=orjson.OPT_SORT_KEYS)


@given(definitions())
def test_run_spec_has_the_fields_of_its_definition(fields: dict[str, Any]) -> None:
    definition = parse(Definition, fields)

    run_spec = parse(RunSpec, RunSpec.from_definition("acme", definition.to_json()))

    assert (run_spec.tenant, run_spec.key, run_spec.target) == (
        "acme",
        definition.key,
        definition.target,
    )
    assert (run_spec.timeout, run_spec.retry) == (definition.timeout, definition.retry)
    assert (run_spec.class_, run_spec.on_unknown) == (definition.class_, definition.on_unknown)
    assert (run_spec.overlap or Overlap.ALLOW, run_spec.rate_limit) == (
        definition.overlap,
        definition.rate_limit,
    )


@given(definitions())
def test_stored_json_and_full_json_are_the_same_definition(fields: dict[str, Any]) -> None:
    definition = parse(Definition, fields)

    assert parse(Definition, definition.to_json()) == definition
    assert parse(Definition, definition.to_full_json()) == definition
