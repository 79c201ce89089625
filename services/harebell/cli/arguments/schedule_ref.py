"""How a schedule is named on the command line: a key, or an id, which is told by its form."""

from typing import Annotated
from uuid import UUID

import typer

from harebell.client.requests import ScheduleRef
from harebell.contract.errors import InvalidInput

Name = Annotated[str | None, typer.Argument(metavar="KEY", help="The schedule's key, or its id.")]
Key = Annotated[str | None, typer.Option("--key", help="The key, whatever it looks like.")]
Id = Annotated[str | None, typer.Option("--id", help="The id.")]


def schedule_ref(name: str | None, key: str | None, id_: str | None) -> ScheduleRef:
    """Raises `Malformed` unless the schedule is named exactly once."""
    if sum(each is not None for each in (name, key, id_)) != 1:
        raise InvalidInput("name one schedule: KEY, --key or --id", code="invalid_reference")
    if key is not None:
        return {"key": key}
    if id_ is not None:
        return {"id": id_}
    return {"id": name} if _is_id(name or "") else {"key": name}


def _is_id(name: str) -> bool:
    try:
        return str(UUID(name)) == name.lower()
    except ValueError:
        return False
