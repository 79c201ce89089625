"""References to secrets, which stand in a definition instead of values (pure)."""

from collections.abc import Iterator
from typing import Annotated, Any, Final, Literal

from pydantic import Discriminator, Tag

from harebell.contract.message import UNION_TAG_PREFIX, StrictMessage, text_of_form

NAME_PATTERN: Final = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$"  # no name leaves its directory
REFERENCE_FIELD: Final = "secret"  # the only field of a reference

TAG_OF_REFERENCE: Final = Tag(UNION_TAG_PREFIX + "reference")
TAG_OF_LITERAL: Final = Tag(UNION_TAG_PREFIX + "literal")

SecretName = Annotated[
    str,
    text_of_form(
        NAME_PATTERN,
        "have 1 to 128 letters, digits, dots, _ and -, and begin with a letter or digit",
    ),
]


class SecretRef(StrictMessage):
    """A reference `{"secret": "name"}`, which the executor resolves at each attempt.

    The name belongs to the tenant of the schedule.
    """

    secret: SecretName


def _tag(value: object) -> Literal["<reference", "<literal"]:
    return "<reference" if isinstance(value, dict | SecretRef) else "<literal"


# The discriminator of a value that is a literal or a reference.
LITERAL_OR_REFERENCE: Final = Discriminator(_tag)


def is_reference(value: object) -> bool:
    """Return whether a JSON value is an object with the only field `secret`."""
    return isinstance(value, dict) and len(value) == 1 and REFERENCE_FIELD in value


def references_in(value: Any, path: str) -> Iterator[tuple[str, Any]]:  # noqa: ANN401  # JSON
    """Yield the path and the value of each reference at any depth of a JSON value."""
    if is_reference(value):
        yield path, value
    elif isinstance(value, dict):
        for name, item in value.items():
            yield from references_in(item, f"{path}.{name}")
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from references_in(item, f"{path}[{index}]")
