"""The page of the messages of users, from the AsyncAPI document."""

from pathlib import Path
from typing import Any, Final

import yaml
from tests.tools.reference import markdown
from tests.tools.reference.markdown import code, codes, prose, table

DOCUMENT: Final = Path(__file__).parents[3] / "schemas" / "asyncapi.yaml"
# The channels of users, with the title and the words of their sections.
CHANNELS: Final = {
    "commands": (
        "Commands",
        (
            "Publish a command to `harebell.commands`, "
            "or with the login of one tenant to `harebell.tenant.<tenant>`."
        ),
    ),
    "queries": (
        "Queries",
        (
            "Publish a query with `reply_to` to `harebell.queries`, "
            "or with the login of one tenant to `harebell.tenant.<tenant>`."
        ),
    ),
    "events": ("Events", "Harebell publishes events to `harebell.events`, and any queue may bind."),
    "dead": ("Dead letters", "Harebell publishes dead letters to `harebell.dead`."),
    "responses": ("Responses", "Harebell publishes each response to the queue in `reply_to`."),
}


def page() -> str:
    """Return the page."""
    document = yaml.safe_load(DOCUMENT.read_text(encoding="utf-8"))
    replies = _replies(document)
    intro = (
        "These are the messages that your programs publish or receive.\n"
        "For programs, `schemas/asyncapi.yaml` describes all messages, those between services "
        "too, and `schemas/jsonschema` has a JSON Schema of each."
    )
    parts = [intro]
    for name, (title, words) in CHANNELS.items():
        channel = document["channels"][name]
        messages = {each: document["components"]["messages"][each] for each in channel["messages"]}
        parts += [f"## {title}", words, _table(messages, replies)]
    return markdown.page("Messages", *parts)


def _table(messages: dict[str, Any], replies: dict[str, list[str]]) -> str:
    has_replies = any(each in replies for each in messages)
    heads = ["message", "routing key", "AMQP type", *(["response"] if has_replies else [])]
    rows = []
    for name, message in messages.items():
        row = [
            code(name),
            codes(message.get("x-routing-keys", ())),
            code(message["bindings"]["amqp"]["messageType"]),
        ]
        if has_replies:
            row.append(codes(each for each in replies.get(name, ()) if each != "response.error"))
        rows.append([*row, prose(message.get("summary", ""))])
    return table([*heads, "meaning"], rows)


def _replies(document: dict[str, Any]) -> dict[str, list[str]]:
    """Return the responses of each request, by the name of the request."""
    found: dict[str, list[str]] = {}
    for operation in document["operations"].values():
        answers = [
            each["$ref"].rpartition("/")[2]
            for each in operation.get("reply", {}).get("messages", ())
        ]
        for each in operation["messages"]:
            if answers:
                found[each["$ref"].rpartition("/")[2]] = answers
    return found
