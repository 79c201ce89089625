"""One YAML or JSON document of an operator, with the line of each field.

The reader refuses aliases, because a short document with aliases can take any amount of memory.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import yaml
from yaml.constructor import SafeConstructor

from harebell.contract.errors import InvalidInput
from harebell.contract.message import quoted
from harebell.contract.types import Json

MAX_DEPTH: Final = 32  # levels of lists and objects

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

    Raise `InvalidInput` for text that is not YAML, for aliases, for repeated keys and for values
    that JSON does not have. The reason contains the line.
    """
    try:
        _check_events(body)
        node = yaml.compose(body, Loader=_Loader)
        lines: dict[str, int] = {}
        return YamlDocument(None if node is None else _value(node, "", lines), lines)
    except (yaml.YAMLError, UnicodeDecodeError, ValueError) as error:
        text = " ".join(str(error).split())
        reason = f"The document must be YAML or JSON: {text}."
        raise InvalidInput(reason, code="not_yaml") from None


def _check_events(body: bytes) -> None:
    """Check the aliases and the depth before the recursive functions read the document."""
    depth = 0
    for event in yaml.parse(body, Loader=_Loader):
        line = _line(event.start_mark)
        if isinstance(event, yaml.AliasEvent):
            reason = f"The document must not contain aliases, but line {line} has *{event.anchor}."
            raise InvalidInput(reason, code="yaml_alias")
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
        if isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        if depth > MAX_DEPTH:
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
    return _SCALARS[node.tag](node)


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
