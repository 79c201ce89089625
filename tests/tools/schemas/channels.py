"""The exchanges as AsyncAPI channels.

The AMQP bindings of AsyncAPI omit the type and the arguments of a queue, so `x-queues` has them.
"""

from collections.abc import Iterable
from typing import Any, Final

from tests.tools.schemas.messages import MESSAGES, RESPONSE_TYPE, TENANT, MessageSpec

from harebell.contract import amqp_names
from harebell.contract.amqp_names import Lane, split_key
from harebell.messaging.replies import DEFAULT_EXCHANGE
from harebell.messaging.topology.bus import (
    BREAKER_SNAPSHOT_KEY,
    BREAKER_SNAPSHOT_REQUEST_KEY,
    SYSTEM,
    executor_control_key,
)
from harebell.messaging.topology.declarations import Exchange, Queue
from harebell.messaging.topology.delay_queues import DELAY_TTLS_MS, delay_queue_key

BINDING: Final = "0.3.0"  # the version of the AMQP bindings
RESPONSES: Final = "responses"  # the channel of responses

Node = dict[str, Any]

_VERB: Final = f"{TENANT}.{{verb}}"
_ADDRESSES: Final = {
    amqp_names.COMMANDS: _VERB,
    amqp_names.QUERIES: _VERB,
    amqp_names.CHANGES: "{service}",
    amqp_names.DELAY: "{ttl}",
    amqp_names.DUE: amqp_names.DUE_KEY,
    amqp_names.WORK: "{pool}.{lane}",
    amqp_names.CONTROL: "{receiver}",
    amqp_names.EVENTS: _VERB,
    amqp_names.DEAD: "{kind}.{origin}",
    amqp_names.UNDELIVERED: _VERB,
    amqp_names.PARKED: "{kind}.{origin}",
}
_PARAMETERS: Final[dict[str, Node]] = {
    "tenant": {
        "description": "The tenant. An installation with one tenant uses `default`. "
        f"Messages that concern no tenant use `{amqp_names.OPERATIONS_TENANT}`."
    },
    "service": {
        "description": "The kind of command, which selects the service that applies it.",
        "enum": [amqp_names.CHANGES_SCHEDULE, amqp_names.CHANGES_DLQ, amqp_names.CHANGES_BREAKER],
    },
    "ttl": {
        "description": "The time in the delay queue, in milliseconds.",
        "enum": [delay_queue_key(ms) for ms in DELAY_TTLS_MS],
    },
    "pool": {"description": "A named group of executors."},
    "lane": {"description": "The priority class.", "enum": [lane.value for lane in Lane]},
    "receiver": {
        "description": f"`{executor_control_key('NAME')}` is one executor. "
        f"`{BREAKER_SNAPSHOT_KEY}` is every dispatcher. "
        f"`{BREAKER_SNAPSHOT_REQUEST_KEY}` is one ticker."
    },
    "kind": {"enum": ["run", "message"]},
    "origin": {"description": "The tenant of a run, or the queue of a message."},
}


def channels() -> Node:
    """Return every exchange as a channel, in the order of a run, and the channel of responses."""
    order = list(_ADDRESSES)
    exchanges = sorted(SYSTEM.exchanges, key=lambda exchange: order.index(exchange.name))
    of_exchanges = {channel_of(exchange.name): _channel(exchange) for exchange in exchanges}
    return {**of_exchanges, RESPONSES: _responses()}


def channel_of(exchange: str) -> str:
    """Return the name of the channel of an exchange."""
    return exchange.rpartition(".")[2]


def messages_of(exchange: str) -> list[MessageSpec]:
    """Return the messages of an exchange."""
    return [each for each in MESSAGES if exchange in {route.exchange for route in each.routes}]


def _channel(exchange: Exchange) -> Node:
    address = _ADDRESSES[exchange.name]
    parameters = {name: _parameter(name, exchange.name) for name in _placeholders(address)}
    return {
        "address": address,
        **({"parameters": parameters} if parameters else {}),
        "messages": _references(messages_of(exchange.name)),
        "bindings": {
            "amqp": {
                "is": "routingKey",
                "exchange": {
                    "name": exchange.name,
                    "type": exchange.kind.value,
                    "durable": True,
                    "autoDelete": False,
                },
                "x-queues": [
                    _queue(queue, exchange.name) for queue in _bound_queues(exchange.name)
                ],
                "bindingVersion": BINDING,
            }
        },
    }


def _responses() -> Node:
    """Return the channel of the default exchange, which routes to the queue in `reply_to`."""
    return {
        "address": None,
        "messages": _references(each for each in MESSAGES if each.type == RESPONSE_TYPE),
        "bindings": {
            "amqp": {
                "is": "routingKey",
                "exchange": {"name": DEFAULT_EXCHANGE, "type": "default"},
                "bindingVersion": BINDING,
            }
        },
    }


def _placeholders(address: str) -> list[str]:
    return [part.strip("{}") for part in address.split(".") if part.startswith("{")]


def _parameter(name: str, exchange: str) -> Node:
    if name != "verb":
        return _PARAMETERS[name]
    keys = (route.key for each in messages_of(exchange) for route in each.routes)
    return {"enum": [split_key(key)[1] for key in keys]}


def _bound_queues(exchange: str) -> list[Queue]:
    bound = {binding.queue for binding in SYSTEM.bindings if binding.exchange == exchange}
    return [queue for queue in SYSTEM.queues if queue.name in bound]


def _queue(queue: Queue, exchange: str) -> Node:
    keys = [
        binding.routing_key
        for binding in SYSTEM.bindings
        if (binding.exchange, binding.queue) == (exchange, queue.name)
    ]
    arguments = queue.arguments()
    return {"name": queue.name, "durable": True, "routingKeys": keys, "arguments": arguments}


def _references(messages: Iterable[MessageSpec]) -> Node:
    return {each.name: {"$ref": f"#/components/messages/{each.name}"} for each in messages}
