"""What of a merge patch can be judged without the definition it will be merged into."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final
from uuid import UUID

from pydantic import ValidationError

from harebell.contract.errors import InvalidInput
from harebell.contract.message import to_invalid_input
from harebell.contract.schedule import Definition
from harebell.intake.definition import TargetPolicy, check_target
from harebell.kernel.soundness import check_when

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
