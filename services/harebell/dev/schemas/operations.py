"""AsyncAPI operations: what Harebell receives from others and tells them, and its inner steps."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final, Literal

from harebell.contract import names
from harebell.contract.commands import COMMANDS
from harebell.contract.queries import QUERIES
from harebell.dev.schemas.channels import ANSWERS, BINDING, carried, channel_of
from harebell.dev.schemas.messages import MESSAGES, Described

PERSISTENT: Final = 2  # AMQP's delivery mode

Node = dict[str, Any]
Action = Literal["send", "receive"]


@dataclass(frozen=True, slots=True)
class Step:
    """One service's part at one exchange."""

    action: Action
    exchange: str
    summary: str


_EVENTS: Final = Step("send", names.EVENTS, "Whoever has moved a run or a schedule says so.")
_INTERNAL: Final = {
    "change": Step("send", names.CHANGES, "Intake passes on what it has checked."),
    "apply": Step("receive", names.CHANGES, "The ticker and the desk apply changes and answer."),
    "wait": Step("send", names.DELAY, "Tickets wait in tiers; the broker moves them on to due."),
    "due": Step("send", names.DUE, "Tickets that are due sooner than any tier."),
    "dispatch": Step("receive", names.DUE, "The dispatcher holds tickets to their lead."),
    "hand-out": Step("send", names.WORK, "The dispatcher sends bundles by pool and lane."),
    "work": Step("receive", names.WORK, "Executors claim runs and start them on their instant."),
    "stop": Step("send", names.CONTROL, "The ticker tells an executor what should not start."),
    "heed": Step("receive", names.CONTROL, "An executor hears it on its own exclusive queue."),
    "bury": Step("send", names.DEAD, "Runs that will not be tried again; messages not understood."),
    "keep": Step("receive", names.DEAD, "The desk keeps dead letters for a person to look at."),
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
