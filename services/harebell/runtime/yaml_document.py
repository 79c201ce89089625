"""YAML or JSON documents of operators and users, with the line of each field.

The reader refuses aliases, because a short document with aliases can take any amount of memory.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import yaml
from yaml.constructor import SafeConstructor

from harebell.contract.errors import InvalidInput
from harebell.contract.message import quoted
from harebell.contract.types import MAX_JSON_DEPTH, Json

MAX_DEPTH: Final = MAX_JSON_DEPTH + 10  # levels of lists and objects: a schedule and its payload
MAX_VALUES: Final = 250_000  # values and keys of one body: about 10,000 schedules

_Loader: Final[Any] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # libyaml is 10 times faster
_TAG: Final = "tag:yaml.org,2002:"
_TEXT_TAGS: Final = (f"{_TAG}str", f"{_TAG}timestamp", f"{_TAG}value")
_CONSTRUCTOR: Final = SafeConstructor()
_SCALARS: Final[Mapping[str, Any]] = {
    f"{_TAG}null": _CONSTRUCTOR.construct_yaml_null,
    f"{_TAG}bool": _CONSTRUCTOR.construct_yaml_bool,
    f"{_TAG}int": _CONSTRUCTOR.construct_yaml_int,
    f"{_TAG}float": _CONSTRUCTOR.construct_yaml_float,
}


@dataclass(frozen=True, slots=True)
class YamlDocument:
    """The JSON value of a document, and the line of each field by its path."""

    value: Json
    lines: Mapping[str, int]  # `tenants.acme.ports[0]` to its line, counted from 1

    def line_of(self, field: str | None) -> int | None:
        """Return the line of a field, or of the nearest field above that the document has."""
        path = field or ""
        while path and path not in self.lines:
            path = path[: max(path.rfind("."), path.rfind("["), 0)]
        return self.lines.get(path)


def parse_yaml(body: bytes) -> YamlDocument:
    """Return the only document of the body, which is null for an empty body.

    Raise `InvalidInput` for text that is not YAML, for aliases, for repeated keys, for values that
    JSON does not have and for too many values. The reason contains the line.
    """
    documents = _read(body, lambda: [yaml.compose(body, Loader=_Loader)])
    return documents[0]


def parse_yaml_documents(body: bytes, *, max_values: int = MAX_VALUES) -> list[YamlDocument]:
    """Return all documents of the body, with the errors of `parse_yaml`."""
    return _read(body, lambda: yaml.compose_all(body, Loader=_Loader), max_values=max_values)


def _read(
    body: bytes,
    compose: Callable[[], Iterable[yaml.Node | None]],
    *,
    max_values: int = MAX_VALUES,
) -> list[YamlDocument]:
    """Return the documents of the nodes, after a check of the events of the body."""
    try:
        _check_events(body, max_values)
        return [_document(node) for node in compose()]
    except (yaml.YAMLError, UnicodeDecodeError, ValueError) as error:
        text = " ".join(str(error).split())
        reason = f"The document must be YAML or JSON: {text}."
        raise InvalidInput(reason, code="not_yaml") from None


def _document(node: yaml.Node | None) -> YamlDocument:
    lines: dict[str, int] = {}
    return YamlDocument(None if node is None else _value(node, "", lines), lines)


def _check_events(body: bytes, max_values: int) -> None:
    """Check aliases, size and depth before the recursive functions read the documents."""
    depth = values = 0
    for event in yaml.parse(body, Loader=_Loader):
        if isinstance(event, yaml.AliasEvent):
            line = _line(event.start_mark)
            reason = f"The document must not contain aliases, but line {line} has *{event.anchor}."
            raise InvalidInput(reason, code="yaml_alias")
        if isinstance(event, yaml.NodeEvent):
            values += 1
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
        if isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        if values > max_values:
            line = _line(event.start_mark)
            reason = f"The file must have at most {max_values} values, but line {line} has more."
            raise InvalidInput(reason, code="too_large")
        if depth > MAX_DEPTH:
            line = _line(event.start_mark)
            reason = f"The document must have at most {MAX_DEPTH} levels, but line {line} has more."
            raise InvalidInput(reason, code="too_deep")


def _value(node: yaml.Node, path: str, lines: dict[str, int]) -> Json:
    lines[path] = _line(node.start_mark)
    if isinstance(node, yaml.MappingNode) and node.tag == f"{_TAG}map":
        return _object(node, path, lines)
    if isinstance(node, yaml.SequenceNode) and node.tag == f"{_TAG}seq":
        return [_value(each, f"{path}[{index}]", lines) for index, each in enumerate(node.value)]
    if node.tag in _TEXT_TAGS:
        return node.value
    if node.tag not in _SCALARS:
        reason = f"The value must be JSON, but line {lines[path]} has the tag {quoted(node.tag)}."
        raise InvalidInput(reason, field=path, code="not_json")
    value: Json = _SCALARS[node.tag](node)
    if isinstance(value, float) and not math.isfinite(value):
        reason = f"The number must be finite, but line {lines[path]} has {quoted(node.value)}."
        raise InvalidInput(reason, field=path, code="not_json")
    return value


def _object(node: yaml.MappingNode, path: str, lines: dict[str, int]) -> dict[str, Json]:
    value: dict[str, Json] = {}
    for key, each in node.value:
        line = _line(key.start_mark)
        if key.tag not in _TEXT_TAGS:
            reason = f"The key in line {line} must be a text, not {quoted(key.value)}."
            raise InvalidInput(reason, field=path or None, code="not_json")
        field = f"{path}.{key.value}" if path else key.value
        if key.value in value:
            reason = f"The field {quoted(key.value)} must occur once, but line {line} repeats it."
            raise InvalidInput(reason, field=field, code="repeated_field")
        value[key.value] = _value(each, field, lines)
        lines[field] = line
    return value


def _line(mark: Any) -> int:  # noqa: ANN401  # the mark of libyaml or of Python
    return int(mark.line) + 1
