"""A merge patch as it is typed: `retry.max_attempts=3`, or a file. Pure, but for the file."""

from collections.abc import Sequence
from copy import deepcopy
from typing import Any, BinaryIO

from harebell.cli.arguments.documents import read_document
from harebell.contract.errors import InvalidInput
from harebell.contract.json_codec import decode


def apply_assignments(
    texts: Sequence[str], file: BinaryIO | None, upon: dict[str, Any] | None = None
) -> dict[str, Any]:
    """Raises `Malformed`. A value is JSON where it can be, else a text.

    `upon`: what is there before, unless a file is given.
    """
    document = deepcopy(upon or {}) if file is None else read_document(file)
    if isinstance(document, list):
        raise InvalidInput("a patch is one object", code="not_a_patch")
    for text in texts:
        path, equals, value = text.partition("=")
        if not equals or not all(path.split(".")):
            raise InvalidInput(f"{text!r} is not like FIELD=VALUE", field="set", code="not_a_patch")
        _put(document, path.split("."), _value(value))
    if not document:
        raise InvalidInput("give --set or --file", code="not_a_patch")
    return document


def _put(fields: dict[str, Any], path: Sequence[str], value: object) -> None:
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
