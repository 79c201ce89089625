"""Where two definitions differ, field by field. Pure."""

from collections.abc import Iterator, Mapping
from typing import Any, Final, TypeAlias

import orjson

Difference: TypeAlias = dict[str, Any]  # field, before, after; and the same in words
MAX_SHOWN: Final = 200  # characters of one value in words


def diff_definitions(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[Difference]:
    return list(_within(before, after, ""))


def _within(before: Mapping[str, Any], after: Mapping[str, Any], path: str) -> Iterator[Difference]:
    for name in dict.fromkeys([*before, *after]):
        field = f"{path}.{name}" if path else name
        old, new = before.get(name), after.get(name)
        if isinstance(old, Mapping) and isinstance(new, Mapping):
            yield from _within(old, new, field)
        elif old != new or (name in before) != (name in after):
            words = f"{field}: {_shown(name, before)} -> {_shown(name, after)}"
            yield {"field": field, "before": old, "after": new, "words": words}


def _shown(name: str, fields: Mapping[str, Any]) -> str:
    if name not in fields:
        return "(none)"
    text = orjson.dumps(fields[name]).decode()
    return text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}..."
