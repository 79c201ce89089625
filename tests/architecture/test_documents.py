"""What the documents show is true: their JSON is accepted, their variables exist.

A fenced `json` block is a message when the keys of its items say so: `when` or `target` a put, `ok`
an answer, `specversion` an event. Any other block must at least be JSON. A block with more than one
value holds one message a line, perhaps after its routing key.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import typer.main
from tests.architecture.sources import ROOT

from harebell.cli.app import app
from harebell.contract.commands import SchedulePut
from harebell.contract.dead_letter import DeadMessage, DeadRun
from harebell.contract.events import Event
from harebell.contract.message import Message, parse
from harebell.contract.responses import (
    DeadLetterResponse,
    ErrorResponse,
    One,
    Page,
    RunResponse,
    ScheduleResponse,
)
from harebell.contract.ticket import Ticket
from harebell.runtime import settings
from harebell.runtime.settings import OTHER_PROGRAMS_SETTINGS, PREFIX, ServiceSettings

DOCUMENTS: Final = [ROOT / "README.md", ROOT / "schemas/README.md", *(ROOT / "docs").rglob("*.md")]
BLOCK: Final = re.compile(r"^```json\n(.*?)^```", re.DOTALL | re.MULTILINE)
SHELL_BODY: Final = re.compile(r"-b '(\{.*?\}|\[.*?\])'", re.DOTALL)
VARIABLE: Final = re.compile(rf"{PREFIX}([A-Z][A-Z_]*[A-Z])")

# The first whose keys are all present says what a message is.
KINDS: Final[tuple[tuple[frozenset[str], type[Message]], ...]] = (
    (frozenset({"specversion"}), Event),
    (frozenset({"ok", "error"}), ErrorResponse),
    (frozenset({"ok", "version"}), ScheduleResponse),
    (frozenset({"ok", "results"}), DeadLetterResponse),
    (frozenset({"ok", "run_id"}), RunResponse),
    (frozenset({"ok", "items"}), Page),
    (frozenset({"ok", "item"}), One),
    (frozenset({"seq", "run_spec"}), Ticket),
    (frozenset({"dead_at", "run_id"}), DeadRun),
    (frozenset({"dead_at", "queue"}), DeadMessage),
    (frozenset({"when", "target"}), SchedulePut),
)


def kind_of(item: object) -> type[Message] | None:
    keys = set(item) if isinstance(item, dict) else set()
    return next((model for needed, model in KINDS if needed <= keys), None)


def examples(pattern: re.Pattern[str]) -> Iterator[Any]:
    for path in DOCUMENTS:
        text = path.read_text(encoding="utf-8")
        for found in pattern.finditer(text):
            line = text.count("\n", 0, found.start()) + 1
            yield pytest.param(found[1], id=f"{path.relative_to(ROOT)}:{line}")


def values(block: str) -> Iterator[Any]:
    """The JSON values of a block, one after another."""
    decoder, place = json.JSONDecoder(), 0
    while rest := block[place:].lstrip():
        place = len(block) - len(rest)
        value, place = decoder.raw_decode(block, place)
        yield value


@pytest.mark.parametrize("block", [*examples(BLOCK), *examples(SHELL_BODY)])
def test_json_in_a_document_is_accepted_as_the_message_that_it_shows(block: str) -> None:
    for value in values(block):
        for item in value if isinstance(value, list) else [value]:
            if (model := kind_of(item)) is not None:
                parse(model, item)


@pytest.mark.parametrize(
    ("item", "model"),
    [
        ({"when": {}, "target": {}}, SchedulePut),
        ({"ok": True, "version": 1, "run_id": "x"}, ScheduleResponse),
        ({"ok": False, "error": {}}, ErrorResponse),
        ({"key": "daily"}, None),
        (7, None),
    ],
)
def test_a_message_is_known_by_its_keys(item: object, model: type[Message] | None) -> None:
    assert kind_of(item) is model


def settings_variables() -> set[str]:
    classes = [each for each in vars(settings).values() if isinstance(each, type)]
    shapes = [each for each in classes if issubclass(each, ServiceSettings)]
    return {name.upper() for shape in shapes for name in shape.model_fields}


def option_variables(command: Any, within: tuple[str, ...] = ()) -> Iterator[str]:
    """`harebell run list --limit` is RUN_LIST_LIMIT."""
    for option in command.params:
        yield "_".join((*within, option.name)).upper().replace("-", "_")
    for name, inner in getattr(command, "commands", {}).items():
        yield from option_variables(inner, (*within, name))


VARIABLES: Final = {
    *settings_variables(),
    *option_variables(typer.main.get_command(app)),
    *OTHER_PROGRAMS_SETTINGS,
}


def named(path: Path) -> set[str]:
    return {found.removesuffix("_FILE") for found in VARIABLE.findall(path.read_text())}


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_variable_in_a_document_exists(path: Path) -> None:
    assert named(path) - VARIABLES == set()
