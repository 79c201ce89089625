"""What a definition must hold beyond its shape: instants and targets that make sense."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final
from uuid import UUID

from pydantic import ValidationError

from harebell.contract.errors import InvalidInput
from harebell.contract.message import quoted, to_invalid_input
from harebell.contract.schedule import Definition
from harebell.contract.target import HttpTarget, Target, TaskTarget
from harebell.domain.url_policy import Network, check_url
from harebell.domain.validation import check_when, naming_field


@dataclass(frozen=True, slots=True)
class TargetPolicy:
    """What targets may call, as far as this door has been told."""

    networks: Sequence[Network] = ()  # private addresses
    tasks: frozenset[str] | None = None  # None: only executors know


def check_definition(
    definition: Definition,
    schedule_id: UUID | None,
    *,
    accepted_at: datetime,
    may_call: TargetPolicy,
) -> None:
    """Raises `Rejected` with the field."""
    check_when(definition.when, schedule_id, now=accepted_at)
    check_target(definition.target, may_call)


def check_target(target: Target, may_call: TargetPolicy, field: str = "target") -> None:
    if isinstance(target, HttpTarget):
        with naming_field(f"{field}.http.url"):
            check_url(target.http.url, may_call.networks)
    if isinstance(target, TaskTarget) and may_call.tasks is not None:
        name = target.task.name
        if name not in may_call.tasks:
            reason = f"no executor is known to have a task {quoted(name)}"
            raise InvalidInput(reason, field=f"{field}.task.name", code="unknown_task")


SET: Final = "set"
_FIELDS: Final = {field.alias or name for name, field in Definition.model_fields.items()}
_WITHOUT_DEFAULT: Final = ("when", "target")
# What a part of a definition lacks may stand in the definition already.
_MAY_BE_THERE: Final = frozenset({"missing", "invalid_when", "invalid_target"})
# In place of what a patch does not touch: a field is judged by itself.
_UNTOUCHED: Final = {"when": {"now": True}, "target": {"task": {"name": "untouched"}}}


def check_patch(
    patch: Mapping[str, Any],
    schedule_id: UUID | None,
    *,
    accepted_at: datetime,
    may_call: TargetPolicy,
) -> None:
    """Raises `Rejected` with the field."""
    if not patch:
        raise InvalidInput("changes nothing", field=SET, code="empty_patch")
    for name, value in patch.items():
        _check_name(name, value)
        definition = _understood(name, value)
        if definition is not None and name == "when":
            check_when(definition.when, schedule_id, now=accepted_at, field=f"{SET}.when")
        elif definition is not None and name == "target":
            check_target(definition.target, may_call, f"{SET}.target")


def _check_name(name: str, value: object) -> None:
    field = f"{SET}.{name}"
    if name not in _FIELDS:
        raise InvalidInput("there is no such field", field=field, code="unknown_field")
    if name == "key":
        reason = "is what the id is made from: put another schedule instead"
        raise InvalidInput(reason, field=field, code="immutable_field")
    if name in _WITHOUT_DEFAULT and value is None:
        raise InvalidInput("has no default to go back to", field=field, code="missing_field")


def _understood(name: str, value: object) -> Definition | None:
    """None where the field is only a part of one; raises `Malformed` for what no part can be."""
    given = {} if value is None else {name: _without_nulls(value)}
    try:
        return Definition.model_validate({**_UNTOUCHED, **given})
    except ValidationError as error:
        faults = error.errors(include_url=False)
    for fault in faults:
        if fault["type"] not in _MAY_BE_THERE:
            fault["loc"] = (SET, *fault["loc"])
            raise to_invalid_input(fault)
    return None


def _without_nulls(value: Any) -> Any:  # noqa: ANN401  # decoded JSON
    """Null takes a field out; a payload is as it is."""
    if not isinstance(value, dict):
        return value
    return {name: _without_nulls(each) for name, each in value.items() if each is not None}
