"""What every message is: frozen, checked once, and strict or lenient by who writes it."""

from collections.abc import Sequence
from reprlib import Repr
from typing import Any, Final, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import ErrorDetails, PydanticCustomError

from harebell.contract.errors import InvalidInput

UNION_TAG_PREFIX: Final = "<"  # union tags begin with it, so that they can be told from field names
MAX_INPUT_SHOWN: Final = 80  # characters of a refused value that a reason quotes

M = TypeVar("M", bound="Message")


class Message(BaseModel):
    """Something on the wire. Unknown fields are ignored: old consumers meet new producers."""

    model_config = ConfigDict(frozen=True, extra="ignore", populate_by_name=True)


class StrictMessage(Message):
    """What a user writes. Unknown fields are refused: a typo must not become a default."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)


def empty_default(kind: type[list[Any]] | type[dict[str, Any]]) -> Any:  # noqa: ANN401  # a field's value
    """The default of a field that is made anew each time: pydantic would copy one, for longer."""
    return Field(default_factory=kind, json_schema_extra={"default": kind()})


def invalid(code: str, reason: str) -> PydanticCustomError:
    """What a validator of ours raises: pydantic adds the field, `malformed` keeps the code."""
    return PydanticCustomError(code, "{reason}", {"reason": reason})


def parse(model: type[M], value: object) -> M:
    """Check a decoded JSON value; raises `Malformed` that names the first bad field."""
    try:
        return model.model_validate(value)
    except ValidationError as error:
        raise to_invalid_input(error.errors(include_url=False)[0]) from None


def to_invalid_input(error: ErrorDetails) -> InvalidInput:
    """One fault, as a person would say it: which field, and what is wrong with it."""
    field = field_path(error["loc"]) or None
    if reason := error.get("ctx", {}).get("reason"):
        return InvalidInput(reason, field=field, code=error["type"])
    match error["type"]:
        case "extra_forbidden":
            return InvalidInput("there is no such field", field=field, code="unknown_field")
        case "missing":
            return InvalidInput("is required", field=field, code="missing_field")
        case _:
            return InvalidInput(f"{error['msg']}; got {quoted(error['input'])}", field=field)


def field_path(loc: Sequence[int | str]) -> str:
    """`("items", 1, "<cron>", "cron")` is `items[1].cron`."""
    path = ""
    for part in loc:
        if isinstance(part, int):
            path += f"[{part}]"
        elif not part.startswith(UNION_TAG_PREFIX):
            path += f".{part}" if path else part
    return path


_QUOTING: Final = Repr()
_QUOTING.maxstring = MAX_INPUT_SHOWN


def quoted(value: object) -> str:
    """Whatever was refused, in a few words: a repr that visits all of it may never end well."""
    text = _QUOTING.repr(value)
    return text if len(text) <= MAX_INPUT_SHOWN else text[:MAX_INPUT_SHOWN] + "..."
