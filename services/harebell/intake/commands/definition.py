"""Rules of definitions and patches besides their types: times and targets (pure)."""

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

SET: Final = "set"
_FIELDS: Final = {field.alias or name for name, field in Definition.model_fields.items()}
_WITHOUT_DEFAULT: Final = ("when", "target")
# The stored definition may contain the fields that a patch of `when` or `target` lacks.
_ERRORS_OF_PARTS: Final = frozenset({"missing", "invalid_when", "invalid_target"})
# Each field of a patch is checked alone, in a definition with these required fields.
_REQUIRED_FIELDS: Final = {"when": {"now": True}, "target": {"task": {"name": "unchanged"}}}


@dataclass(frozen=True, slots=True)
class TargetPolicy:
    """The private networks that HTTP targets may call, and the names of all tasks."""

    networks: Sequence[Network] = ()
    tasks: frozenset[str] | None = None  # None: intake accepts every task name


def check_definition(
    definition: Definition,
    schedule_id: UUID | None,
    *,
    accepted_at: datetime,
    target_policy: TargetPolicy,
) -> None:
    """Raise `Rejected` with the field of the first rule that the definition breaks."""
    check_when(definition.when, schedule_id, now=accepted_at)
    check_target(definition.target, target_policy)


def check_target(target: Target, target_policy: TargetPolicy, field: str = "target") -> None:
    """Raise `Rejected` for a target that the policy does not allow."""
    if isinstance(target, HttpTarget):
        with naming_field(f"{field}.http.url"):
            check_url(target.http.url, target_policy.networks)
    if isinstance(target, TaskTarget) and target_policy.tasks is not None:
        name = target.task.name
        if name not in target_policy.tasks:
            reason = (
                f"The task must be one of the known tasks of the executors, not {quoted(name)}."
            )
            raise InvalidInput(reason, field=f"{field}.task.name", code="unknown_task")


def check_patch(
    patch: Mapping[str, Any],
    schedule_id: UUID | None,
    *,
    accepted_at: datetime,
    target_policy: TargetPolicy,
) -> None:
    """Raise `Rejected` with the field of the first change that is invalid in every definition."""
    if not patch:
        reason = "The patch must change at least one field, and the patch is empty."
        raise InvalidInput(reason, field=SET, code="empty_patch")
    for name, value in patch.items():
        _check_name(name, value)
        definition = _definition_with(name, value)
        if definition is not None and name == "when":
            check_when(definition.when, schedule_id, now=accepted_at, field=f"{SET}.when")
        elif definition is not None and name == "target":
            check_target(definition.target, target_policy, f"{SET}.target")


def _check_name(name: str, value: object) -> None:
    field = f"{SET}.{name}"
    if name not in _FIELDS:
        reason = f"The field {quoted(name)} is unknown."
        raise InvalidInput(reason, field=field, code="unknown_field")
    if name == "key":
        reason = "A patch must not change the key, because the schedule id is derived from the key."
        raise InvalidInput(reason, field=field, code="immutable_field")
    if name in _WITHOUT_DEFAULT and value is None:
        reason = f"The field {name} must have a value, because {name} has no default."
        raise InvalidInput(reason, field=field, code="missing_field")


def _definition_with(name: str, value: object) -> Definition | None:
    """Return a definition with the field, or None for a part that the stored definition completes.

    Raise `InvalidInput` for a value that is invalid in every definition.
    """
    given = {} if value is None else {name: _without_nulls(value)}
    try:
        return Definition.model_validate({**_REQUIRED_FIELDS, **given})
    except ValidationError as error:
        errors = error.errors(include_url=False)
    for each in errors:
        if each["type"] not in _ERRORS_OF_PARTS:
            each["loc"] = (SET, *each["loc"])
            raise to_invalid_input(each)
    return None


def _without_nulls(value: Any) -> Any:  # noqa: ANN401  # decoded JSON
    """Return the value without the fields that are null, because null removes a field."""
    if not isinstance(value, dict):
        return value
    return {name: _without_nulls(each) for name, each in value.items() if each is not None}
