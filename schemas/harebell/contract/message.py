"""The bases of every message: frozen models, strict for users and lenient between services."""

from collections.abc import Mapping, Sequence
from reprlib import Repr
from typing import Any, Final, TypeVar

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError
from pydantic_core import ErrorDetails, PydanticCustomError

from harebell.contract.errors import InvalidInput
from harebell.contract.redaction import REDACTED, hides_input

UNION_TAG_PREFIX: Final = "<"  # marks union tags, which `field_path` leaves out
MAX_INPUT_SHOWN: Final = 80  # characters of a rejected value that a reason quotes

M = TypeVar("M", bound="Message")


class Message(BaseModel):
    """A frozen JSON object that ignores unknown fields, so that old consumers read new messages.

    Pydantic builds each model at its first use, because a command uses few models (decision 32).
    The text of an error omits the input, because a log must contain no literal secret.
    """

    model_config = ConfigDict(
        frozen=True,
        extra="ignore",
        populate_by_name=True,
        defer_build=True,
        hide_input_in_errors=True,
    )


class StrictMessage(Message):
    """A message that a user writes. An unknown field is an error, because it may be a typo."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        populate_by_name=True,
        defer_build=True,
        hide_input_in_errors=True,
    )


def build_models() -> None:
    """Build every imported message model, so that the first message of a service is not late."""
    models: list[type[Message]] = [Message]
    while models:
        model = models.pop()
        model.model_rebuild()
        models += model.__subclasses__()


class UnionByKey:
    """The check and the discriminator of a union whose objects name their model by one key."""

    def __init__(
        self, models: Mapping[str, type[Message]], *, code: str, other_keys: bool = False
    ) -> None:
        """Define the union. `code` is the code of its errors.

        `other_keys`: the models have other fields besides that key.
        """
        self._tags = {kind: UNION_TAG_PREFIX + kind for kind in models}
        self._tags_of_models: dict[type, str] = {
            model: self._tags[kind] for kind, model in models.items()
        }
        self._code = code
        self._other_keys = other_keys

    def check(self, value: object) -> object:
        """Return the value. Raise an error unless it has exactly one key of the union."""
        if not isinstance(value, dict):
            if isinstance(value, Message):
                return value
            raise invalid(self._code, f"The value must be an object, not {quoted(value)}.")
        if len(value) == 1 and next(iter(value)) in self._tags:
            return value
        known = [kind for kind in self._tags if kind in value]
        if len(known) == 1 and self._other_keys:
            return value
        names = ", ".join(known if self._other_keys else map(str, value))
        found = names[:MAX_INPUT_SHOWN] or "none of them"
        reason = f"The object must have exactly one of {', '.join(self._tags)}, but has {found}."
        raise invalid(self._code, reason)

    def tag(self, value: object) -> str | None:
        """Return the union tag of a checked value."""
        if not isinstance(value, dict):
            return self._tags_of_models.get(type(value))
        for name in value:
            if name in self._tags:
                return self._tags[name]
        return None


def empty_default(kind: type[list[Any]] | type[dict[str, Any]]) -> Any:  # noqa: ANN401  # a field's value
    """Return a default that each instance creates, which is faster than a copy by pydantic."""
    return Field(default_factory=kind, json_schema_extra={"default": kind()})


def invalid(code: str, reason: str) -> PydanticCustomError:
    """Return the error that a validator raises. `reason` is a complete sentence."""
    return PydanticCustomError(code, "{reason}", {"reason": reason})


def parse(model: type[M], value: object) -> M:
    """Return the model of a JSON value. Raise `InvalidInput` for the first invalid field."""
    try:
        return model.model_validate(value)
    except ValidationError as error:
        raise to_invalid_input(error.errors(include_url=False)[0]) from None


# What a value must be or have, by its pattern or by the type of an error.
_FORMS: Final[dict[str, str]] = {
    "dict_type": "be an object",
    "model_type": "be an object",
    "uuid_parsing": "be a UUID",
    "uuid_type": "be a UUID",
}


def text_of_form(pattern: str, form: str, *, max_length: int | None = None) -> StringConstraints:
    """Return the constraint of a text. An error says `The value must {form}`."""
    _FORMS[pattern] = form
    return StringConstraints(pattern=pattern, max_length=max_length)


def to_invalid_input(error: ErrorDetails) -> InvalidInput:
    """Return the `InvalidInput` of an error of pydantic, with its field and a whole sentence."""
    field = field_path(error["loc"]) or None
    if reason := error.get("ctx", {}).get("reason"):
        return InvalidInput(reason, field=field, code=error["type"])
    match error["type"]:
        case "extra_forbidden":
            name = quoted(error["loc"][-1])
            return InvalidInput(f"The field {name} is unknown.", field=field, code="unknown_field")
        case "missing":
            name = quoted(error["loc"][-1])
            return InvalidInput(f"The field {name} is required.", field=field, code="missing_field")
        case _:
            return InvalidInput(_reason(error), field=field)


def _reason(error: ErrorDetails) -> str:
    """Return a sentence about a value, which contains the value unless that may be a secret."""
    value, kind = error["input"], error["type"]
    if value == "" and kind.endswith("too_short"):
        return "The text must not be empty."
    found = REDACTED if hides_input(error["loc"], value) else quoted(value)
    if form := _FORMS.get(error.get("ctx", {}).get("pattern", kind)):
        return f"The value must {form}, not {found}."
    message = error["msg"]
    if kind == "too_long" and isinstance(value, str):
        message = message.replace("Value", "Text").replace("items", "characters")
    return _sentence(message, found)


def _sentence(message: str, found: str) -> str:
    """Return `Input should be a valid string` as `The value must be a valid string, not 7.`."""
    subject, should, expected = message.replace(" after validation", "").partition(" should ")
    if not should:
        return f"{message}. The value is {found}."
    subject = "value" if subject == "Input" else subject.lower()
    ending = "" if ", not " in expected else f", not {found}"
    return f"The {subject} must {expected}{ending}."


def field_path(loc: Sequence[int | str]) -> str:
    """Return the path of a field: `("items", 1, "<cron", "cron")` becomes `items[1].cron`."""
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
    """Return a short `repr` of a value. A full `repr` of a huge value would take too long."""
    text = _QUOTING.repr(value)
    return text if len(text) <= MAX_INPUT_SHOWN else text[:MAX_INPUT_SHOWN] + "..."
