"""The AsyncAPI operations: the requests and events of users, and the steps between services."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final, Literal

from tests.tools.schemas.channels import BINDING, RESPONSES, channel_of, messages_of
from tests.tools.schemas.messages import MESSAGES, MessageSpec

from harebell.contract import amqp_names
from harebell.contract.commands import COMMANDS
from harebell.contract.queries import QUERIES

PERSISTENT: Final = 2  # the delivery mode in AMQP

Node = dict[str, Any]
Action = Literal["send", "receive"]


@dataclass(frozen=True, slots=True)
class Step:
    """The action of one service at one exchange."""

    action: Action
    exchange: str
    summary: str


_EVENTS: Final = Step(
    "send", amqp_names.EVENTS, "The service that changes a run or a schedule publishes an event."
)
_INTERNAL: Final = {
    "accept": Step("send", amqp_names.CHANGES, "Intake publishes the commands that it accepted."),
    "apply": Step(
        "receive",
        amqp_names.CHANGES,
        "The ticker and the dlq_inspector apply commands and send responses.",
    ),
    "delay": Step(
        "send",
        amqp_names.DELAY,
        "Tickets wait in delay queues, from which the broker moves them to the due exchange.",
    ),
    "due": Step(
        "send", amqp_names.DUE, "Tickets are published here if their wait is too short to delay."
    ),
    "dispatch": Step(
        "receive", amqp_names.DUE, "The dispatcher queues each ticket until its lead."
    ),
    "release": Step(
        "send", amqp_names.WORK, "The dispatcher publishes work batches by pool and lane."
    ),
    "execute": Step(
        "receive", amqp_names.WORK, "Executors claim runs and start them at their due time."
    ),
    "request-stop": Step(
        "send", amqp_names.CONTROL, "The ticker requests an executor to cancel a claimed run."
    ),
    "stop": Step(
        "receive", amqp_names.CONTROL, "An executor consumes requests from its exclusive queue."
    ),
    "dead-letter": Step(
        "send",
        amqp_names.DEAD,
        "Services publish runs that are no longer retried and messages that are invalid.",
    ),
    "store": Step("receive", amqp_names.DEAD, "The dlq_inspector stores dead letters."),
}


def operations() -> Node:
    """Return the requests by verb, the events, and the steps with the tag `internal`."""
    internal = {
        name: {**_operation(step), "tags": [{"name": "internal"}]}
        for name, step in _INTERNAL.items()
    }
    return {**dict(_requests()), "events": _operation(_EVENTS), **internal}


def summary(message: MessageSpec) -> str:
    """Return the first line of the docstring of a message."""
    return (message.model.__doc__ or message.name).strip().splitlines()[0]


def _requests() -> Iterator[tuple[str, Node]]:
    for message in MESSAGES:
        if message.name in COMMANDS or message.name in QUERIES:
            channel = channel_of(message.routes[0].exchange)
            reply = {
                "address": {"location": "$message.header#/reply_to"},
                "channel": {"$ref": f"#/channels/{RESPONSES}"},
                "messages": _references(RESPONSES, message.responses),
            }
            operation = _node("receive", channel, summary(message), messages=[message.name])
            yield message.name, {**operation, "reply": reply}


def _operation(step: Step) -> Node:
    messages = [message.name for message in messages_of(step.exchange)]
    return _node(step.action, channel_of(step.exchange), step.summary, messages=messages)


def _node(action: Action, channel: str, text: str, *, messages: Iterable[str]) -> Node:
    sent = {"deliveryMode": PERSISTENT, "mandatory": True}
    delivery = sent if action == "send" else {"ack": True}
    return {
        "action": action,
        "channel": {"$ref": f"#/channels/{channel}"},
        "summary": text,
        "messages": _references(channel, messages),
        "bindings": {"amqp": {**delivery, "bindingVersion": BINDING}},
    }


def _references(channel: str, messages: Iterable[str]) -> list[Node]:
    return [{"$ref": f"#/channels/{channel}/messages/{name}"} for name in messages]
