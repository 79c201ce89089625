"""Messages as v1 wrote them are understood as long as there is a v1: these files never change.

A message that gains an optional field may gain a further example; no example is edited.
"""

from pathlib import Path
from typing import Any, Final

import orjson
import pytest
from tests.tools.schemas.messages import MESSAGES, Described

from harebell.contract import json_codec
from harebell.contract.commands import COMMANDS
from harebell.contract.errors import InvalidInput
from harebell.contract.message import StrictMessage, parse
from harebell.contract.queries import QUERIES
from harebell.contract.schedule import Definition
from harebell.contract.ticket import RunSpec

GOLDEN: Final = Path(__file__).parent / "golden"
EXAMPLES: Final = [
    pytest.param(message, item, id=f"{message.name}[{place}]")
    for message in MESSAGES
    if (GOLDEN / message.file).exists()
    for place, item in enumerate(orjson.loads((GOLDEN / message.file).read_bytes()))
]


def test_every_message_has_an_example_and_every_example_its_message() -> None:
    assert {path.name for path in GOLDEN.iterdir()} == {message.file for message in MESSAGES}


@pytest.mark.parametrize(("message", "item"), EXAMPLES)
def test_nothing_in_it_is_lost(message: Described, item: Any) -> None:
    understood = parse(message.model, item)

    assert says(orjson.loads(json_codec.encode(understood)), item)


@pytest.mark.parametrize(("message", "item"), EXAMPLES)
def test_written_and_read_again_it_is_the_same(message: Described, item: Any) -> None:
    understood = parse(message.model, item)

    assert parse(message.model, json_codec.decode(json_codec.encode(understood))) == understood


@pytest.mark.parametrize(("message", "item"), EXAMPLES)
def test_a_field_of_a_later_version_is_ignored_but_in_what_users_write(
    message: Described, item: Any
) -> None:
    later = {**item, "of_a_later_version": 1}

    if issubclass(message.model, StrictMessage):
        with pytest.raises(InvalidInput, match="there is no such field"):
            parse(message.model, later)
    else:
        assert parse(message.model, later) == parse(message.model, item)


def test_what_a_ticket_leaves_unsaid_means_the_same_for_ever() -> None:
    target = {"task": {"name": "report"}}
    said = {
        "class": "normal",
        "timeout": "30s",
        "retry": {
            "max_attempts": 5,
            "backoff": {"base": "1s", "factor": 2, "cap": "5m", "jitter": "full"},
        },
        "on_unknown": "retry",
        "overlap": "allow",
    }

    terse = RunSpec.model_validate({"tenant": "acme", "target": target})
    assert terse == RunSpec.model_validate({"tenant": "acme", "target": target, **said}).model_copy(
        update={"overlap": None}
    )
    told = parse(Definition, {"when": {"now": True}, "target": target, **said}).to_json()
    assert RunSpec.from_definition("acme", told) == {"tenant": "acme", "target": target}


def test_only_requests_are_strict() -> None:
    strict = {message.name for message in MESSAGES if issubclass(message.model, StrictMessage)}

    assert strict == {*COMMANDS, *QUERIES}


def says(told: Any, asked: Any) -> bool:
    """Everything that `asked` says, `told` says too; defaults may have joined it."""
    if isinstance(asked, dict):
        return isinstance(told, dict) and all(
            name in told and says(told[name], value) for name, value in asked.items()
        )
    if isinstance(asked, list):
        return len(told) == len(asked) and all(map(says, told, asked))
    return bool(told == asked)
