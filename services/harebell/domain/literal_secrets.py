"""Rules for the secrets in a target: refused values, warnings and the policy of a tenant."""

from collections.abc import Sequence
from typing import Any, Final, assert_never

import orjson
from pydantic import TypeAdapter, ValidationError

from harebell.contract.errors import InvalidInput, NotAllowed
from harebell.contract.message import to_invalid_input
from harebell.contract.redaction import REDACTED, literals_of, refuse_redacted
from harebell.contract.secret import SecretRef, references_in
from harebell.contract.target import AmqpTarget, HttpTarget, Target, TaskTarget

_REFERENCE_START: Final = b'{"secret":'  # of each reference in compact JSON
_REFERENCE: Final = TypeAdapter(SecretRef)


def literal_fields(target: Target) -> list[str]:
    """Return the fields of the target that contain literal secrets."""
    return list(literals_of(_as_json(target))) if _may_contain_literals(target) else []


def check_secrets(target: Target, field: str, *, allows_literals: bool = True) -> None:
    """Raise `Rejected` for `***`, an invalid reference or a literal that the policy refuses."""
    if isinstance(target, TaskTarget):
        check_references(target.task.args, f"{field}.task.args")
    elif _may_contain_literals(target):
        check_literals(_as_json(target), field, allows_literals=allows_literals)


def check_literals(target: Any, field: str, *, allows_literals: bool) -> None:  # noqa: ANN401  # JSON
    """Raise `Rejected` for `***`, or for a literal secret that the policy refuses.

    The target may be a part of one, as in a patch.
    """
    refuse_redacted(target, field)
    if not allows_literals:
        _refuse(list(literals_of(target)), field)


def check_edited_secrets(target: Target, *, allows: bool) -> None:
    """Raise `Rejected` like `check_secrets`, but accept `***`, which keeps a stored secret."""
    if isinstance(target, TaskTarget):
        check_references(target.task.args, "target.task.args")
    elif not allows and _may_contain_literals(target):
        literals = literals_of(_as_json(target))
        _refuse([field for field in literals if literals[field] != REDACTED], "target")


def _refuse(fields: Sequence[str], within: str) -> None:
    if fields:
        reason = "The policy of the tenant requires a reference here instead of a literal secret."
        raise NotAllowed(reason, field=f"{within}.{fields[0]}", rule="literal_secrets")


def check_references(args: dict[str, Any], field: str) -> None:
    """Raise `InvalidInput` for an object with the only field `secret` that names no secret."""
    if _REFERENCE_START not in orjson.dumps(args):
        return
    for path, value in references_in(args, field):
        try:
            _REFERENCE.validate_python(value)
        except ValidationError as error:
            invalid = to_invalid_input(error.errors(include_url=False)[0])
            reason = "The field secret must be the name of a secret."
            raise InvalidInput(reason, field=path, code=invalid.code) from None


def literal_warnings(target: Target) -> list[str] | None:
    """Return a sentence for each literal secret, or None without one."""
    return [
        f"The field target.{field} contains a literal secret. A reference is safer."
        for field in literal_fields(target)
    ] or None


def _may_contain_literals(target: Target) -> bool:
    match target:
        case HttpTarget(http=call):
            return bool(call.headers) or call.userinfo is not None or "@" in call.url
        case AmqpTarget(amqp=message):
            return bool(message.headers)
        case TaskTarget():
            return False
        case _:
            assert_never(target)


def _as_json(target: Target) -> dict[str, Any]:
    return target.model_dump(mode="json", by_alias=True, exclude_none=True)
