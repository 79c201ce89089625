"""Any value as JSON that PostgreSQL can store."""

import math
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from harebell.contract.scalars import instant_text

MAX_DEPTH: Final = 64  # levels; a payload has at most 32, and a story adds a few
TOO_DEEP: Final = "(nested too deep to keep)"
_INTEGERS: Final = range(-(2**63), 2**64)


def sanitize_text(value: str, limit: int | None = None) -> str:
    """Its beginning, without NUL and lone surrogates: a text column has no room for them."""
    return value[:limit].replace("\0", "\ufffd").encode(errors="replace").decode()


def sanitize_json(value: object, depth: int = 0) -> Any:  # noqa: ANN401  # JSON
    """What JSON has no word for becomes text: it is kept to be read by people."""
    if depth > MAX_DEPTH:
        return TOO_DEEP
    match value:
        case Mapping():
            return {
                sanitize_text(str(name)): sanitize_json(item, depth + 1)
                for name, item in value.items()
            }
        case list() | tuple():
            return [sanitize_json(item, depth + 1) for item in value]
        case None | bool():
            return value
        case int() | float() if _is_number(value):
            return value
        case _:
            return sanitize_text(_told(value))


def _is_number(value: float) -> bool:
    return value in _INTEGERS if isinstance(value, int) else math.isfinite(value)


def _told(value: object) -> str:
    match value:
        case bytes() | bytearray():
            return value.decode(errors="backslashreplace")
        case datetime() if value.tzinfo is not None:
            return instant_text(value)
        case _:
            return str(value)
