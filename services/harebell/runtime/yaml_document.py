"""YAML or JSON documents of operators and users, with the line of each field.

Plain values have the types of the core schema of YAML 1.2, as in JSON. In YAML 1.1, which PyYAML
reads, `22:30` is 1350 and `no` is false.
Aliases are refused, because a short document with them can take any amount of memory.
"""

import json
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final

import yaml

from harebell.contract.errors import InvalidInput
from harebell.contract.message import quoted
from harebell.contract.types import MAX_JSON_DEPTH, Json

MAX_DEPTH: Final = MAX_JSON_DEPTH + 10  # levels of lists and objects: a schedule and its payload
MAX_VALUES: Final = 250_000  # values and keys of one body: about 10,000 schedules

MAX_LINE_SHOWN: Final = 120  # characters of a line in an error

_TAG: Final = "tag:yaml.org,2002:"
_TEXT: Final = f"{_TAG}str"
# The plain values that are no text, by the tags of the core schema (YAML 1.2.2, 10.3.2).
_SCALARS: Final[Mapping[str, re.Pattern[str]]] = {
    f"{_TAG}null": re.compile(r"null|Null|NULL|~|"),
    f"{_TAG}bool": re.compile(r"true|True|TRUE|false|False|FALSE"),
    f"{_TAG}int": re.compile(r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+"),
    f"{_TAG}float": re.compile(
        r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?"
        r"|[-+]?(\.inf|\.Inf|\.INF)|\.nan|\.NaN|\.NAN"
    ),
}
_BASES: Final = {"0o": 8, "0x": 16}


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]  # no types
    """The loader of PyYAML with the types of YAML 1.2. libyaml is ten times faster."""

    yaml_implicit_resolvers: ClassVar[dict[str, Any]] = {}


def resolve_core_schema(processor: Any) -> None:  # noqa: ANN401  # a class without types
    """Let a loader of PyYAML find, or a dumper quote, the plain values that are no text."""
    for tag, form in _SCALARS.items():
        processor.add_implicit_resolver(tag, re.compile(f"(?:{form.pattern})\\Z"), None)


resolve_core_schema(_Loader)


@dataclass(frozen=True, slots=True, kw_only=True)
class YamlDocument:
    """The JSON value of a document, and the line of each field by its path."""

    value: Json
    # From a path such as `tenants.acme.ports[0]` to its line, counted from 1.
    lines: Mapping[str, int] = field(default_factory=dict)
    text: Sequence[str] = ()  # the lines of the body
    values_of_lines: Mapping[int, int] = field(default_factory=dict)  # the number of values

    def line_of(self, field: str | None) -> int | None:
        """Return the line of a field, or of the nearest field above that the document has."""
        path = field or ""
        while path and path not in self.lines:
            path = path[: max(path.rfind("."), path.rfind("["), 0)]
        return self.lines.get(path)

    def written(self, line: int) -> str | None:
        """Return a line as it is written, without indentation and its end beyond the bound.

        Return None for a line with several values, because the others may be secrets.
        """
        if self.values_of_lines.get(line, 0) > 1 or line > len(self.text):
            return None
        text = self.text[line - 1].strip()
        return text if len(text) <= MAX_LINE_SHOWN else f"{text[:MAX_LINE_SHOWN]}…"


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
        text = body.decode("utf-8-sig", errors="replace").splitlines()
        return [_document(node, text) for node in compose()]
    except (yaml.YAMLError, UnicodeDecodeError, ValueError) as error:
        reason = f"The document must be YAML or JSON: {' '.join(str(error).split())}."
        failure = InvalidInput(reason, code="not_yaml")
    if len(body) <= max_values:  # the values of JSON have a byte each
        with suppress(ValueError, RecursionError):
            value = json.loads(
                body, object_pairs_hook=_unique_fields, parse_constant=_refuse_constant
            )
            return [YamlDocument(value=value)]
    raise failure


def _unique_fields(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    """Return an object of a JSON document that is no YAML, because of a tab or of a surrogate."""
    value = dict(pairs)
    if len(value) < len(pairs):
        names = [name for name, _ in pairs]
        name = next(each for each in names if names.count(each) > 1)
        reason = f"The field {quoted(name)} must occur once in its object."
        raise InvalidInput(reason, code="repeated_field")
    return value


def _refuse_constant(name: str) -> None:
    """Raise an error for `NaN` or `Infinity`, which Python accepts and JSON does not have."""
    raise ValueError(name)


def _document(node: yaml.Node | None, text: Sequence[str]) -> YamlDocument:
    reader = _Reader()
    value = None if node is None else reader.value(node, "")
    return YamlDocument(value=value, lines=reader.lines, text=text, values_of_lines=reader.values)


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


class _Reader:
    """The values of the nodes of a document, with their lines."""

    def __init__(self) -> None:
        self.lines: dict[str, int] = {}
        self.values: Counter[int] = Counter()  # by line

    def value(self, node: yaml.Node, path: str) -> Json:
        """Return the value of a node. Raise `InvalidInput`."""
        line = self.lines[path] = _line(node.start_mark)
        if isinstance(node, yaml.MappingNode) and node.tag == f"{_TAG}map":
            return self._object(node, path)
        if isinstance(node, yaml.SequenceNode) and node.tag == f"{_TAG}seq":
            return [self.value(each, f"{path}[{index}]") for index, each in enumerate(node.value)]
        self.values[line] += 1
        if node.tag == _TEXT:
            return node.value
        form = _SCALARS.get(node.tag)
        if form is None or form.fullmatch(node.value) is None:
            found = f"{quoted(node.value)} with the tag {quoted(node.tag.removeprefix(_TAG))}"
            reason = f"The value must be JSON, but line {line} has {found}."
            raise InvalidInput(reason, field=path, code="not_json")
        value = _scalar(node.tag.removeprefix(_TAG), node.value)
        if isinstance(value, float) and not math.isfinite(value):
            reason = f"The number must be finite, but line {line} has {quoted(node.value)}."
            raise InvalidInput(reason, field=path, code="not_json")
        return value

    def _object(self, node: yaml.MappingNode, path: str) -> dict[str, Json]:
        value: dict[str, Json] = {}
        for key, each in node.value:
            line = _line(key.start_mark)
            if key.tag != _TEXT:
                reason = f"The key in line {line} must be a text, not {quoted(key.value)}."
                raise InvalidInput(reason, field=path or None, code="not_json")
            name = f"{path}.{key.value}" if path else key.value
            if key.value in value:
                reason = (
                    f"The field {quoted(key.value)} must occur once, but line {line} repeats it."
                )
                raise InvalidInput(reason, field=name, code="repeated_field")
            value[key.value] = self.value(each, name)
            self.lines[name] = line
        return value


def _scalar(kind: str, text: str) -> Json:
    """Return a plain value in one of the forms of its type."""
    match kind:
        case "null":
            return None
        case "bool":
            return text.lower() == "true"
        case "int":
            base = _BASES.get(text[:2])
            return int(text) if base is None else int(text[2:], base)
        case _:
            return float(text.lower().replace(".inf", "inf").replace(".nan", "nan"))


def _line(mark: Any) -> int:  # noqa: ANN401  # the mark of libyaml or of Python
    return int(mark.line) + 1
