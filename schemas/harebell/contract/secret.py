"""The reference to a secret, which stands in a definition instead of the value."""

from typing import Annotated, Final

from pydantic import StringConstraints

from harebell.contract.message import StrictMessage

NAME_PATTERN: Final = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$"  # no name leaves its directory

SecretName = Annotated[str, StringConstraints(pattern=NAME_PATTERN)]


class SecretRef(StrictMessage):
    """A reference `{"secret": "name"}`, which the executor resolves at each attempt.

    The name belongs to the tenant of the schedule.
    """

    secret: SecretName
