"""References to a schedule on the command line: a key or an id.

An argument in the form of a UUID is an id. `--key` and `--id` state the kind explicitly.
"""

from dataclasses import dataclass
from typing import Annotated, TypeAlias
from uuid import UUID

import typer

from harebell.client.requests import ScheduleRef
from harebell.contract.errors import InvalidInput

Schedule: TypeAlias = Annotated[
    str, typer.Argument(metavar="SCHEDULE", help="Name the schedule (key or id).")
]
OptionalSchedule: TypeAlias = Annotated[
    str | None, typer.Argument(metavar="SCHEDULE", help="Name the schedule (key or id).")
]
Key: TypeAlias = Annotated[
    str | None,
    typer.Option("--key", metavar="KEY", help="Name the schedule by its key (any text)."),
]
Id: TypeAlias = Annotated[
    str | None, typer.Option("--id", metavar="ID", help="Name the schedule by its id (UUID).")
]


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleRefOptions:
    """The three ways to name one schedule."""

    schedule: OptionalSchedule = None
    key: Key = None
    id: Id = None

    @property
    def is_named(self) -> bool:
        """True if at least one way is used."""
        return any(each is not None for each in (self.schedule, self.key, self.id))

    @property
    def ref(self) -> ScheduleRef:
        """The schedule. Raises `InvalidInput` unless exactly one way is used."""
        return schedule_ref(self.schedule, self.key, self.id)


def schedule_ref(
    argument: str | None, key: str | None = None, id_: str | None = None
) -> ScheduleRef:
    """Return the reference to a schedule. Raises `InvalidInput` unless one name is given."""
    if sum(each is not None for each in (argument, key, id_)) != 1:
        raise InvalidInput(
            "The command needs exactly one schedule: SCHEDULE, --key or --id.",
            code="invalid_reference",
        )
    if key is not None:
        return {"key": key}
    if id_ is not None:
        return {"id": id_}
    return {"id": argument} if _is_id(argument or "") else {"key": argument}


def _is_id(text: str) -> bool:
    try:
        return str(UUID(text)) == text.lower()
    except ValueError:
        return False
