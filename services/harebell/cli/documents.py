"""Schedules as a file or standard input holds them: one JSON object, or an array of them."""

from typing import Any, BinaryIO, TypeAlias

from harebell.contract.codec import decode
from harebell.contract.commands import MAX_BODY
from harebell.contract.errors import Malformed

Document: TypeAlias = dict[str, Any] | list[dict[str, Any]]


def read_document(file: BinaryIO) -> Document:
    """Raises `Malformed`. What the objects say is checked by Harebell."""
    body = file.read(MAX_BODY + 1)
    if len(body) > MAX_BODY:
        raise Malformed(f"the file is over {MAX_BODY} bytes", code="too_large")
    document = decode(body)
    items = document if isinstance(document, list) else [document]
    if not items or not all(isinstance(item, dict) for item in items):
        raise Malformed("must be a JSON object, or an array of objects", code="not_a_schedule")
    return document  # type: ignore[no-any-return]  # checked above
