"""The AsyncAPI 3 document: the bus and every message on it, from the topology and the contract."""

from typing import Any, Final, assert_never

from tests.tools.schemas.channels import BINDING, channels
from tests.tools.schemas.messages import MESSAGES, Described, Shape
from tests.tools.schemas.operations import operations, summary

from harebell.contract import __version__, amqp_names
from harebell.contract.commands import MAX_ITEMS

ASYNCAPI: Final = "3.0.0"
SCHEMAS: Final = "jsonschema"  # the folder of the schemas, beside the document

Node = dict[str, Any]

_ABOUT: Final = """\
Schedule events in, runs out: once, on time, on the record.
Other services publish to `harebell.commands`, ask at `harebell.queries` and listen to
`harebell.events`; the other channels are between Harebell's own services.
"""
_DEAD_HEADERS: Final[dict[str, Node]] = {
    amqp_names.DEAD_REASON: {"type": "string"},
    amqp_names.DEAD_QUEUE: {"type": "string", "description": "Of a message: where it was found."},
    amqp_names.DEAD_KEY: {"type": "string", "description": "Of a run: its schedule's key."},
    amqp_names.DEAD_RUN: {"type": "string"},
    amqp_names.DEAD_ATTEMPTS: {"type": "integer"},
}

_REFUSAL_HEADERS: Final[dict[str, Node]] = {
    amqp_names.REJECTED_KEY: {"type": "string"},
    amqp_names.REJECTED_CODE: {
        "type": "string",
        "description": "Of the first refusal, as the others.",
    },
    amqp_names.REJECTED_FIELD: {"type": "string"},
    amqp_names.REJECTED_REASON: {"type": "string"},
}
REFUSED: Final = "event.schedule.rejected"


def document() -> Node:
    return {
        "asyncapi": ASYNCAPI,
        "info": {"title": "Harebell", "version": __version__, "description": _ABOUT},
        "defaultContentType": amqp_names.JSON,
        "channels": channels(),
        "operations": operations(),
        "components": {
            "messages": {message.name: _message(message) for message in MESSAGES},
            "correlationIds": {
                "request": {
                    "description": "The AMQP property; an answer carries that of its request.",
                    "location": "$message.header#/correlation_id",
                }
            },
        },
    }


def _message(message: Described) -> Node:
    exchanges = {route.exchange for route in message.routes}
    is_asked = bool(message.answers) or not message.routes  # a request, or an answer to one
    return {
        "name": message.name,
        "summary": summary(message),
        "contentType": message.content_type,
        **({"headers": _headers(_DEAD_HEADERS)} if exchanges == {amqp_names.DEAD} else {}),
        **({"headers": _headers(_REFUSAL_HEADERS)} if message.name == REFUSED else {}),
        **(
            {"correlationId": _reference("#/components/correlationIds/request")} if is_asked else {}
        ),
        "payload": _payload(message),
        "bindings": {"amqp": {"messageType": message.type, "bindingVersion": BINDING}},
        **({"x-routing-keys": [route.key for route in message.routes]} if message.routes else {}),
    }


def _headers(named: Node) -> Node:
    return {"type": "object", "properties": named}


def _payload(message: Described) -> Node:
    item = _reference(f"{SCHEMAS}/{message.file}")
    several = {"type": "array", "items": item, "minItems": 1}
    match message.shape:
        case Shape.ONE:
            return item
        case Shape.ONE_OR_MANY:
            return {"oneOf": [item, {**several, "maxItems": MAX_ITEMS}]}
        case Shape.MANY:
            return several
        case _:
            assert_never(message.shape)


def _reference(to: str) -> Node:
    return {"$ref": to}
