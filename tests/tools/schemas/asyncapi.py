"""The AsyncAPI 3 document: the exchanges and their messages, from the topology and the contract."""

from typing import Any, Final, assert_never

from tests.tools.schemas.channels import BINDING, channels
from tests.tools.schemas.messages import MESSAGES, MessageSpec, Shape
from tests.tools.schemas.operations import operations, summary

from harebell.contract import __version__, amqp_names
from harebell.contract.commands import MAX_ITEMS

ASYNCAPI: Final = "3.0.0"
SCHEMAS: Final = "jsonschema"  # the folder of the schemas, next to the document

Node = dict[str, Any]

_DESCRIPTION: Final = """\
Harebell stages runs of schedules and executes each run once, on time and on record.
Other services publish commands to `harebell.commands` and queries to `harebell.queries`.
Other services consume events from `harebell.events`.
The services of Harebell use the other channels.
"""
_DEAD_HEADERS: Final[dict[str, Node]] = {
    amqp_names.DEAD_REASON: {"type": "string"},
    amqp_names.DEAD_QUEUE: {"type": "string", "description": "The queue of a dead message."},
    amqp_names.DEAD_KEY: {"type": "string", "description": "The schedule key of a dead run."},
    amqp_names.DEAD_RUN: {"type": "string"},
    amqp_names.DEAD_ATTEMPTS: {"type": "integer"},
}

_REJECTION_HEADERS: Final[dict[str, Node]] = {
    amqp_names.REJECTED_KEY: {"type": "string"},
    amqp_names.REJECTED_CODE: {
        "type": "string",
        "description": "The code of the first rejection, which the other headers describe too.",
    },
    amqp_names.REJECTED_FIELD: {"type": "string"},
    amqp_names.REJECTED_REASON: {"type": "string"},
}
REJECTED: Final = "event.schedule.rejected"


def document() -> Node:
    """Return the whole document."""
    return {
        "asyncapi": ASYNCAPI,
        "info": {"title": "Harebell", "version": __version__, "description": _DESCRIPTION},
        "defaultContentType": amqp_names.JSON,
        "channels": channels(),
        "operations": operations(),
        "components": {
            "messages": {message.name: _message(message) for message in MESSAGES},
            "correlationIds": {
                "request": {
                    "description": "The AMQP property. A response has the value of its request.",
                    "location": "$message.header#/correlation_id",
                }
            },
        },
    }


def _message(message: MessageSpec) -> Node:
    exchanges = {route.exchange for route in message.routes}
    is_rpc = bool(message.responses) or not message.routes  # a request, or a response
    return {
        "name": message.name,
        "summary": summary(message),
        "contentType": message.content_type,
        **({"headers": _headers(_DEAD_HEADERS)} if amqp_names.DEAD in exchanges else {}),
        **({"headers": _headers(_REJECTION_HEADERS)} if message.name == REJECTED else {}),
        **({"correlationId": _reference("#/components/correlationIds/request")} if is_rpc else {}),
        "payload": _payload(message),
        "bindings": {"amqp": {"messageType": message.type, "bindingVersion": BINDING}},
        **({"x-routing-keys": [route.key for route in message.routes]} if message.routes else {}),
    }


def _headers(properties: Node) -> Node:
    return {"type": "object", "properties": properties}


def _payload(message: MessageSpec) -> Node:
    item = _reference(f"{SCHEMAS}/{message.file}")
    array = {"type": "array", "items": item, "minItems": 1}
    match message.shape:
        case Shape.ONE:
            return item
        case Shape.ONE_OR_MANY:
            return {"oneOf": [item, {**array, "maxItems": MAX_ITEMS}]}
        case Shape.MANY:
            return array
        case _:
            assert_never(message.shape)


def _reference(to: str) -> Node:
    return {"$ref": to}
