"""Every field of a request has bounds, and none of its values causes an unforeseen error.

A number without a bound is read by intake and fails where it is stored or computed with.
"""

import json
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, Final

import orjson
import pytest
from hypothesis import given, settings
from tests.fakes.command_check import check
from tests.fakes.schema_values import Schema, resolve, values_of

from harebell.contract.amqp_names import OPERATIONS_TENANT, message_key
from harebell.contract.breakers import BREAKER_COMMANDS
from harebell.contract.commands import COMMANDS
from harebell.contract.errors import Rejected
from harebell.contract.json_codec import decode
from harebell.contract.message import parse
from harebell.contract.queries import QUERIES
from harebell.intake.commands.check import IncomingRequest

NOW: Final = datetime(2026, 11, 20, 9, tzinfo=UTC)
MODELS: Final = {**COMMANDS, **QUERIES}
# The size of the message bounds these texts, and its depth bounds these values.
WITH_SIZE_OF_MESSAGE: Final = frozenset(
    {"args", "base64", "body", "checkpoint", "headers", "json", "metadata", "payload", "result"}
    | {"set", "text", "*"}
)
CHOICES: Final = frozenset({"anyOf", "oneOf", "enum", "const"})
LEAST: Final = frozenset({"minimum", "exclusiveMinimum"})
MOST: Final = frozenset({"maximum", "exclusiveMaximum"})
BOUNDS_OF_TEXT: Final = frozenset({"maxLength", "pattern", "format"})


def unbounded(schema: Schema, root: Schema, path: tuple[str, ...] = ()) -> Iterator[str]:
    """Yield the paths of the fields without bounds."""
    if path.count(path[-1] if path else "") > 1:  # a schema that contains itself
        return
    schema = resolve(schema, root)
    for each in (*schema.get("anyOf", ()), *schema.get("oneOf", ())):
        yield from unbounded(each, root, path)
    for name, each in schema.get("properties", {}).items():
        yield from unbounded(each, root, (*path, name))
    if path and path[-1] in WITH_SIZE_OF_MESSAGE:
        return
    if "items" in schema:
        yield from unbounded(schema["items"], root, (*path, "items"))
    if path and not (CHOICES & set(schema) or has_bounds(schema)):
        yield ".".join(path)


def has_bounds(schema: Schema) -> bool:
    names = set(schema)
    match schema.get("type"):
        case "integer" | "number":
            return bool(LEAST & names and MOST & names)
        case "string":
            return bool(BOUNDS_OF_TEXT & names)
        case "array":
            return "maxItems" in names
        case "object":
            return bool(schema.get("properties")) or "maxProperties" in names
        case kind:
            return kind in ("boolean", "null")


@pytest.mark.parametrize("verb", MODELS)
def test_each_field_has_bounds(verb: str) -> None:
    schema = MODELS[verb].model_json_schema(by_alias=True)

    assert list(unbounded(schema, schema)) == []


@pytest.mark.parametrize("verb", COMMANDS)
def test_each_command_is_rejected_or_can_be_read_where_it_is_applied(verb: str) -> None:
    tenant = OPERATIONS_TENANT if verb in BREAKER_COMMANDS else "acme"

    @settings(max_examples=40)
    @given(values_of(COMMANDS[verb].model_json_schema(by_alias=True)))
    def check_value(body: Any) -> None:
        request = IncomingRequest(
            routing_key=message_key(tenant, verb), body=json.dumps(body).encode(), message_id="m-1"
        )
        for item in check(request, accepted_at=NOW).accepted.items:
            if item.rejection is None:
                parse(COMMANDS[verb], decode(orjson.dumps(item.body)))

    check_value()


@pytest.mark.parametrize("verb", QUERIES)
def test_each_query_is_rejected_or_read(verb: str) -> None:
    @settings(max_examples=40)
    @given(values_of(QUERIES[verb].model_json_schema(by_alias=True)))
    def parse_value(body: Any) -> None:
        with suppress(Rejected):
            parse(QUERIES[verb], decode(json.dumps(body).encode()))

    parse_value()
