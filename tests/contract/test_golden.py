"""The present code reads every message of version 1. A golden file never changes.

A message that gains an optional field may gain another example in its file.
"""

from pathlib import Path
from typing import Any, Final

import orjson
import pytest
from tests.tools.schemas.messages import MESSAGES, MessageSpec

from harebell.contract import json_codec
from harebell.contract.commands import COMMANDS
from harebell.contract.errors import InvalidInput
from harebell.contract.message import StrictMessage, parse
from harebell.contract.queries import QUERIES
from harebell.contract.schedule import Definition
from harebell.contract.ticket import RunSpec

GOLDEN: Final = Path(__file__).parent / "golden"
EXAMPLES: Final = [
    pytest.param(message, item, id=f"{message.name}[{index}]")
    for message in MESSAGES
    if (GOLDEN / message.file).exists()
    for index, item in enumerate(orjson.loads((GOLDEN / message.file).read_bytes()))
]


def test_each_message_has_a_golden_file_and_each_golden_file_has_a_message() -> None:
    assert {path.name for path in GOLDEN.iterdir()} == {message.file for message in MESSAGES}


@pytest.mark.parametrize(("message", "item"), EXAMPLES)
def test_message_keeps_every_field(message: MessageSpec, item: Any) -> None:
    parsed = parse(message.model, item)

    assert contains(orjson.loads(json_codec.encode(parsed)), item)


@pytest.mark.parametrize(("message", "item"), EXAMPLES)
def test_message_is_the_same_after_encoding(message: MessageSpec, item: Any) -> None:
    parsed = parse(message.model, item)

    assert parse(message.model, json_codec.decode(json_codec.encode(parsed))) == parsed


@pytest.mark.parametrize(("message", "item"), EXAMPLES)
def test_message_ignores_an_unknown_field_and_request_rejects_it(
    message: MessageSpec, item: Any
) -> None:
    later = {**item, "of_a_later_version": 1}

    if issubclass(message.model, StrictMessage):
        with pytest.raises(InvalidInput, match="'of_a_later_version' is unknown"):
            parse(message.model, later)
    else:
        assert parse(message.model, later) == parse(message.model, item)


def test_defaults_of_a_ticket_never_change() -> None:
    target = {"task": {"name": "report"}}
    defaults = {
        "class": "normal",
        "timeout": "30s",
        "retry": {
            "max_attempts": 5,
            "backoff": {"base": "1s", "factor": 2, "cap": "5m", "jitter": "additive"},
        },
        "on_unknown": "retry",
        "overlap": "allow",
    }

    short = RunSpec.model_validate({"tenant": "acme", "target": target})
    full = RunSpec.model_validate({"tenant": "acme", "target": target, **defaults})
    assert short == full.model_copy(update={"overlap": None})
    definition = parse(Definition, {"when": {"now": True}, "target": target, **defaults})
    assert RunSpec.from_definition("acme", definition.to_json()) == {
        "tenant": "acme",
        "target": target,
    }


def test_only_requests_are_strict() -> None:
    strict = {message.name for message in MESSAGES if issubclass(message.model, StrictMessage)}

    assert strict == {*COMMANDS, *QUERIES}


def contains(value: Any, part: Any) -> bool:
    """Return whether a JSON value has every field of another one. It may also have defaults."""
    if isinstance(part, dict):
        return isinstance(value, dict) and all(
            name in value and contains(value[name], item) for name, item in part.items()
        )
    if isinstance(part, list):
        return len(value) == len(part) and all(map(contains, value, part))
    return bool(value == part)
