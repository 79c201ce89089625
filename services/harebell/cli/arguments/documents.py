"""Schedules in one JSON file or on standard input: one object or several."""

from typing import Any, BinaryIO, TypeAlias

from harebell.contract.commands import MAX_BODY
from harebell.contract.errors import InvalidInput
from harebell.contract.json_codec import decode

Document: TypeAlias = dict[str, Any] | list[dict[str, Any]]


def read_document(file: BinaryIO) -> Document:
    """Return the JSON of a file: an object, or an array of objects. Raises `InvalidInput`.

    Intake checks the fields of the objects.
    """
    document = decode(read_body(file, MAX_BODY))
    check_objects(document if isinstance(document, list) else [document])
    return document  # type: ignore[no-any-return]  # `check_objects` proves the type


def read_body(file: BinaryIO, limit: int) -> bytes:
    """Return the bytes of a file. Raises `InvalidInput` for a file over the limit."""
    body = file.read(limit + 1)
    if len(body) > limit:
        raise InvalidInput(f"The file must have at most {limit} bytes.", code="too_large")
    return body


def check_objects(items: list[Any]) -> None:
    """Raise `InvalidInput` unless every item is an object and at least one exists."""
    if not items or not all(isinstance(item, dict) for item in items):
        reason = "The document must be an object or a non-empty array of objects."
        raise InvalidInput(reason, code="not_a_schedule")
