"""The JSON and the environment variables of the documents agree with the code.

The keys of a JSON object tell which message it shows.
A fenced `json` block without a known message must still be JSON.
A block with several values contains one message on each line.
"""

import json
import re
from collections.abc import Iterator
from typing import Any, Final

import pytest
from tests.architecture.documents import documents
from tests.architecture.source_tree import ROOT, setting_variables

from harebell.contract.commands import SchedulePut
from harebell.contract.dead_letter import DeadMessage, DeadRun
from harebell.contract.events import Event
from harebell.contract.message import Message, parse
from harebell.contract.responses import (
    DeadLetterResponse,
    ErrorResponse,
    Page,
    RunResponse,
    ScheduleResponse,
)
from harebell.contract.ticket import Ticket
from harebell.runtime.settings import OTHER_PROGRAMS_SETTINGS, PREFIX

BLOCK: Final = re.compile(r"^```json\n(.*?)^```", re.DOTALL | re.MULTILINE)
SHELL_BODY: Final = re.compile(r"-b '(\{.*?\}|\[.*?\])'", re.DOTALL)
VARIABLE: Final = re.compile(rf"{PREFIX}[A-Z][A-Z_]*[A-Z]")
FILE_SUFFIX: Final = "_FILE"

# The first entry whose keys are all present names the model.
MODELS: Final[tuple[tuple[frozenset[str], type[Message]], ...]] = (
    (frozenset({"specversion"}), Event),
    (frozenset({"ok", "error"}), ErrorResponse),
    (frozenset({"ok", "version"}), ScheduleResponse),
    (frozenset({"ok", "results"}), DeadLetterResponse),
    (frozenset({"ok", "run_id"}), RunResponse),
    (frozenset({"ok", "items"}), Page),
    (frozenset({"seq", "run_spec"}), Ticket),
    (frozenset({"dead_at", "run_id"}), DeadRun),
    (frozenset({"dead_at", "queue"}), DeadMessage),
    (frozenset({"when", "target"}), SchedulePut),
)
# The variables that Docker Compose replaces in its file.
COMPOSE_VARIABLES: Final = frozenset(
    re.findall(r"\$\{(HAREBELL_\w+)", (ROOT / "compose" / "compose.yaml").read_text())
)
VARIABLES: Final = (
    setting_variables() | {PREFIX + name for name in OTHER_PROGRAMS_SETTINGS} | COMPOSE_VARIABLES
)


def model_of(item: object) -> type[Message] | None:
    """Return the model of the message that the object shows."""
    keys = set(item) if isinstance(item, dict) else set()
    return next((model for needed, model in MODELS if needed <= keys), None)


def examples(pattern: re.Pattern[str]) -> Iterator[Any]:
    """Yield each match in a document as a test parameter with its page and its line."""
    for document in documents():
        for found in pattern.finditer(document.text):
            line = document.text.count("\n", 0, found.start()) + 1
            yield pytest.param(found[1], id=f"{document}:{line}")


def values(block: str) -> Iterator[Any]:
    """Yield the JSON values of a block."""
    decoder, position = json.JSONDecoder(), 0
    while rest := block[position:].lstrip():
        value, position = decoder.raw_decode(block, len(block) - len(rest))
        yield value


@pytest.mark.parametrize("block", [*examples(BLOCK), *examples(SHELL_BODY)])
def test_json_of_a_document_is_a_valid_message(block: str) -> None:
    for value in values(block):
        for item in value if isinstance(value, list) else [value]:
            if (model := model_of(item)) is not None:
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
def test_model_follows_from_the_keys(item: object, model: type[Message] | None) -> None:
    assert model_of(item) is model


@pytest.mark.parametrize("document", documents(), ids=str)
def test_variable_of_a_document_exists(document: Any) -> None:
    names = set(VARIABLE.findall(document.text)) - VARIABLES

    assert {name.removesuffix(FILE_SUFFIX) for name in names} - VARIABLES == set()
