"""The page of the environment variables, from the settings classes."""

from collections.abc import Sequence
from datetime import timedelta
from enum import Enum
from importlib import import_module
from types import NoneType, UnionType
from typing import Annotated, Any, Final, Literal, Union, get_args, get_origin

import annotated_types
from pydantic.fields import FieldInfo
from tests.architecture.source_tree import source_modules
from tests.tools.reference import markdown
from tests.tools.reference.markdown import code, codes, table

from harebell.contract.types import duration_text
from harebell.domain.default_schedule import DefaultWhen
from harebell.runtime.settings import PREFIX, ServiceSettings

GROUPS: Final = {
    "ServiceSettings": "All services",
    "TargetSettings": "Intake and executor",
    "IntakeSettings": "Intake",
    "TickerSettings": "Ticker",
    "DispatcherSettings": "Dispatcher",
    "ExecutorSettings": "Executor",
    "DlqInspectorSettings": "Dlq_inspector",
}
_BOUNDS: Final[dict[type, tuple[str, str]]] = {
    annotated_types.Ge: ("ge", "at least"),
    annotated_types.Gt: ("gt", "more than"),
    annotated_types.Le: ("le", "at most"),
    annotated_types.Lt: ("lt", "less than"),
    annotated_types.MaxLen: ("max_length", "at most this many items:"),
}
_PLAIN_NAMES: Final = {
    "timedelta": "duration",
    "int": "whole number",
    "float": "number",
    "bool": "`true` or `false`",
    "str": "text",
    "Path": "path",
    "SecretStr": "secret text",
}


def page() -> str:
    """Return the page."""
    intro = (
        "Services read these variables once, when they start.\n"
        "If one is unknown or its value invalid, the service does not start and names it.\n"
        "Add the suffix `_FILE` to give the path of a file with the value.\n"
        "What each one is for is on the page [settings](../operations/settings.md)."
    )
    parts = [intro]
    for settings in _classes():
        rows = [_row(name, settings.model_fields[name]) for name in _own_fields(settings)]
        if rows:
            parts += [
                f"## {GROUPS[settings.__name__]}",
                table(("variable", "value", "default", "bound"), rows),
            ]
    return markdown.page("Environment variables", *parts)


def _classes() -> Sequence[type[ServiceSettings]]:
    for module in source_modules():
        if "Settings(ServiceSettings)" in module.source:
            import_module(module.name)
    found: list[type[ServiceSettings]] = [ServiceSettings, *ServiceSettings._classes]  # noqa: SLF001  # every service's
    return sorted(
        (each for each in found if each.__module__.startswith("harebell.")),
        key=lambda each: list(GROUPS).index(each.__name__),
    )


def _own_fields(settings: type[ServiceSettings]) -> list[str]:
    bases = [each for each in settings.__mro__[1:] if issubclass(each, ServiceSettings)]
    inherited = {name for base in bases for name in base.model_fields}
    return [name for name in settings.model_fields if name not in inherited]


def _row(name: str, field: FieldInfo) -> tuple[str, str, str, str]:
    default = "required" if field.is_required() else _text(field.default)
    bounds = [_bound(each) for each in [*field.metadata, *_metadata(field.annotation)]]
    return (
        code(PREFIX + name.upper()),
        _type(field.annotation),
        default,
        ", ".join(dict.fromkeys(each for each in bounds if each)),
    )


def _metadata(annotation: Any) -> list[Any]:
    """Return what `Annotated` carries inside an optional type."""
    if get_origin(annotation) in {Union, UnionType}:
        return [found for each in get_args(annotation) for found in _metadata(each)]
    if get_origin(annotation) is not Annotated:
        return []
    found: list[Any] = []
    for each in annotation.__metadata__:
        found += each.metadata if isinstance(each, FieldInfo) else [each]
    return found


def _bound(constraint: object) -> str:
    name, words = _BOUNDS.get(type(constraint), ("", ""))
    return f"{words} {_text(getattr(constraint, name))}" if name else ""


def _type(annotation: Any) -> str:
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _type(arguments[0])
    if origin is Literal:
        return codes(arguments)
    if origin in {Union, UnionType}:
        return ", ".join(_type(each) for each in arguments if each is not NoneType)
    if origin in {tuple, frozenset}:
        return "list, separated by commas"
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        return codes(each.value for each in annotation)
    return _PLAIN_NAMES.get(annotation.__name__, "JSON")


def _text(value: object) -> str:
    if value is None:
        return "none"
    match value:
        case bool():
            return code(str(value).lower())
        case timedelta():
            return code(duration_text(value))
        case tuple() | frozenset():
            return codes(sorted(map(str, value))) or "none"
        case DefaultWhen():
            return code(value.default.model_dump_json(exclude_unset=True, by_alias=True))
        case _:
            return code(value)
