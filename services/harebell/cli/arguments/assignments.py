"""Merge patches on the command line: `--set retry.max_attempts=3`, or a file."""

from collections.abc import Sequence
from copy import deepcopy
from typing import Any, BinaryIO, Final

from harebell.cli.arguments.documents import read_document
from harebell.contract.errors import InvalidInput
from harebell.contract.json_codec import decode

CODE: Final = "not_a_patch"


def apply_assignments(
    assignments: Sequence[str], file: BinaryIO | None, *, base: dict[str, Any] | None = None
) -> dict[str, Any]:
    """Return the document of the file, or `base` without a file, after the assignments.

    A value is JSON if it parses as JSON, else a text. Raises `InvalidInput`.
    """
    document = deepcopy(base or {}) if file is None else read_document(file)
    if isinstance(document, list):
        raise InvalidInput("The patch must be one object, not an array.", code=CODE)
    for text in assignments:
        path, equals, value = text.partition("=")
        if not equals or not all(path.split(".")):
            reason = f"The assignment must have the form FIELD=VALUE, not {text!r}."
            raise InvalidInput(reason, field="set", code=CODE)
        _assign(document, path.split("."), _value(value))
    if not document:
        raise InvalidInput("The patch must change a field: pass --set or --file.", code=CODE)
    return document


def _assign(fields: dict[str, Any], path: Sequence[str], value: object) -> None:
    *parents, last = path
    for name in parents:
        inner = fields.setdefault(name, {})
        if not isinstance(inner, dict):
            inner = fields[name] = {}
        fields = inner
    fields[last] = value


def _value(text: str) -> object:
    try:
        value: object = decode(text.encode())
    except InvalidInput:
        return text
    return value
