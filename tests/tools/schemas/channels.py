"""Exchanges as AsyncAPI channels.

The AMQP bindings have no place for a queue's type and arguments, so they stand in `x-queues`.
"""

from collections.abc import Iterable
from typing import Any, Final

from tests.tools.schemas.messages import MESSAGES, TENANT, Described

from harebell.contract import amqp_names
from harebell.contract.amqp_names import Lane, message_type, split_key
from harebell.messaging.replies import DEFAULT_EXCHANGE
from harebell.messaging.topology.bus import (
    BREAKER_SNAPSHOT_KEY,
    BREAKER_SNAPSHOT_REQUEST_KEY,
    SYSTEM,
    executor_control_key,
)
from harebell.messaging.topology.declarations import Exchange, Queue
from harebell.messaging.topology.delay_queues import DELAY_TTLS_MS, delay_queue_key

BINDING: Final = "0.3.0"  # of all AMQP bindings
ANSWERS: Final = "answers"

Node = dict[str, Any]

_VERB: Final = f"{TENANT}.{{verb}}"
_ADDRESSES: Final = {
    amqp_names.COMMANDS: _VERB,
    amqp_names.QUERIES: _VERB,
    amqp_names.CHANGES: "{about}",
    amqp_names.DELAY: "{tier}",
    amqp_names.DUE: amqp_names.DUE_KEY,
    amqp_names.WORK: "{pool}.{lane}",
    amqp_names.CONTROL: "{to}",
    amqp_names.EVENTS: _VERB,
    amqp_names.DEAD: "{kind}.{origin}",
}
_PARAMETERS: Final[dict[str, Node]] = {
    "tenant": {
        "description": "Whose it is; where there is one tenant, `default`; "
        f"`{amqp_names.OPERATIONS_TENANT}` where it is no tenant's."
    },
    "about": {
        "enum": [amqp_names.CHANGES_SCHEDULE, amqp_names.CHANGES_DLQ, amqp_names.CHANGES_BREAKER]
    },
    "tier": {
        "description": "Milliseconds of waiting.",
        "enum": [delay_queue_key(ms) for ms in DELAY_TTLS_MS],
    },
    "pool": {"description": "A named group of executors."},
    "lane": {"description": "A class of priority.", "enum": [lane.value for lane in Lane]},
    "to": {
        "description": f"`{executor_control_key('NAME')}`: one executor. `{BREAKER_SNAPSHOT_KEY}`: dispatchers, all "
        f"of them. `{BREAKER_SNAPSHOT_REQUEST_KEY}`: a ticker."
    },
    "kind": {"enum": ["run", "message"]},
    "origin": {"description": "The tenant of a run; the queue of a message."},
}


def channels() -> Node:
    order = list(_ADDRESSES)
    exchanges = sorted(SYSTEM.exchanges, key=lambda exchange: order.index(exchange.name))
    ours = {channel_of(exchange.name): _channel(exchange) for exchange in exchanges}
    return {**ours, ANSWERS: _answers()}


def channel_of(exchange: str) -> str:
    return exchange.rpartition(".")[2]


def carried(exchange: str) -> list[Described]:
    return [each for each in MESSAGES if exchange in {route.exchange for route in each.routes}]


def _channel(exchange: Exchange) -> Node:
    address = _ADDRESSES[exchange.name]
    parameters = {name: _parameter(name, exchange.name) for name in _placeholders(address)}
    return {
        "address": address,
        **({"parameters": parameters} if parameters else {}),
        "messages": _listed(carried(exchange.name)),
        "bindings": {
            "amqp": {
                "is": "routingKey",
                "exchange": {
                    "name": exchange.name,
                    "type": exchange.kind.value,
                    "durable": True,
                    "autoDelete": False,
                },
                "x-queues": [_queue(queue, exchange.name) for queue in _bound(exchange.name)],
                "bindingVersion": BINDING,
            }
        },
    }


def _answers() -> Node:
    """Through the default exchange, to the queue that `reply_to` names."""
    return {
        "address": None,
        "messages": _listed(each for each in MESSAGES if each.type == message_type("answer")),
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
    keys = (route.key for each in carried(exchange) for route in each.routes)
    return {"enum": [split_key(key)[1] for key in keys]}


def _bound(exchange: str) -> list[Queue]:
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


def _listed(messages: Iterable[Described]) -> Node:
    return {each.name: {"$ref": f"#/components/messages/{each.name}"} for each in messages}
