"""AsyncAPI operations: what Harebell receives from others and tells them, and its inner steps."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final, Literal

from tests.tools.schemas.channels import ANSWERS, BINDING, carried, channel_of
from tests.tools.schemas.messages import MESSAGES, Described

from harebell.contract import amqp_names
from harebell.contract.commands import COMMANDS
from harebell.contract.queries import QUERIES

PERSISTENT: Final = 2  # AMQP's delivery mode

Node = dict[str, Any]
Action = Literal["send", "receive"]


@dataclass(frozen=True, slots=True)
class Step:
    """One service's part at one exchange."""

    action: Action
    exchange: str
    summary: str


_EVENTS: Final = Step("send", amqp_names.EVENTS, "Whoever has moved a run or a schedule says so.")
_INTERNAL: Final = {
    "accepted_commands": Step("send", amqp_names.CHANGES, "Intake passes on what it has checked."),
    "apply": Step(
        "receive", amqp_names.CHANGES, "The ticker and the desk apply changes and answer."
    ),
    "wait": Step(
        "send", amqp_names.DELAY, "Tickets wait in tiers; the broker moves them on to due."
    ),
    "due": Step("send", amqp_names.DUE, "Tickets that are due sooner than any tier."),
    "dispatch": Step("receive", amqp_names.DUE, "The dispatcher holds tickets to their lead."),
    "hand-out": Step("send", amqp_names.WORK, "The dispatcher sends bundles by pool and lane."),
    "work": Step(
        "receive", amqp_names.WORK, "Executors claim runs and start them on their instant."
    ),
    "stop": Step("send", amqp_names.CONTROL, "The ticker tells an executor what should not start."),
    "heed": Step("receive", amqp_names.CONTROL, "An executor hears it on its own exclusive queue."),
    "bury": Step(
        "send", amqp_names.DEAD, "Runs that will not be tried again; messages not understood."
    ),
    "keep": Step(
        "receive", amqp_names.DEAD, "The desk keeps dead letters for a person to look at."
    ),
}


def operations() -> Node:
    """Requests by their verbs; the steps between our own services have a tag."""
    inner = {
        name: {**_operation(step), "tags": [{"name": "internal"}]}
        for name, step in _INTERNAL.items()
    }
    return {**dict(_requests()), "events": _operation(_EVENTS), **inner}


def summary(message: Described) -> str:
    return (message.model.__doc__ or message.name).strip().splitlines()[0]


def _requests() -> Iterator[tuple[str, Node]]:
    for message in MESSAGES:
        if message.name in COMMANDS or message.name in QUERIES:
            channel = channel_of(message.routes[0].exchange)
            reply = {
                "address": {"location": "$message.header#/reply_to"},
                "channel": {"$ref": f"#/channels/{ANSWERS}"},
                "messages": _chosen(ANSWERS, message.answers),
            }
            operation = _node("receive", channel, summary(message), [message.name])
            yield message.name, {**operation, "reply": reply}


def _operation(step: Step) -> Node:
    messages = [message.name for message in carried(step.exchange)]
    return _node(step.action, channel_of(step.exchange), step.summary, messages)


def _node(action: Action, channel: str, summary: str, messages: Iterable[str]) -> Node:
    sent = {"deliveryMode": PERSISTENT, "mandatory": True}
    how = sent if action == "send" else {"ack": True}
    return {
        "action": action,
        "channel": {"$ref": f"#/channels/{channel}"},
        "summary": summary,
        "messages": _chosen(channel, messages),
        "bindings": {"amqp": {**how, "bindingVersion": BINDING}},
    }


def _chosen(channel: str, messages: Iterable[str]) -> list[Node]:
    return [{"$ref": f"#/channels/{channel}/messages/{name}"} for name in messages]
