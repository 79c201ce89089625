"""Which schedules an order is for: one by name, or many by a selector or a receipt."""

from dataclasses import dataclass
from datetime import datetime
from secrets import token_hex
from typing import Annotated, Final

import typer

from harebell.cli.arguments.schedule_ref import schedule_ref
from harebell.client.requests import ScheduleRef
from harebell.contract.errors import InvalidInput

TOKEN: Final = 3  # random bytes that tell one receipt's name from another's

Tag = Annotated[str | None, typer.Option("--tag", help="All with this tag.")]
Owner = Annotated[str | None, typer.Option("--owner", help="All of this owner.")]
NameFilter = Annotated[str | None, typer.Option("--name", help="All of this name.")]
StateFilter = Annotated[str | None, typer.Option("--state", help="All in this state.")]
Receipt = Annotated[
    str | None, typer.Option("--receipt", help="Exactly those that an earlier order changed.")
]


@dataclass(frozen=True, slots=True)
class ScheduleSelection:
    """Either `one`, or what `select` or `receipt` says."""

    one: ScheduleRef | None = None
    select: dict[str, str] | None = None
    receipt: str | None = None

    @classmethod
    def by(
        cls,
        *named: str | None,
        receipt: str | None = None,
        **selector: str | None,
    ) -> "ScheduleSelection":
        """`named`: KEY, --key, --id. Raises `Malformed` unless exactly one way is taken."""
        select = {name: value for name, value in selector.items() if value is not None}
        ways = [any(each is not None for each in named), bool(select), receipt is not None]
        if sum(ways) != 1:
            reason = "name one schedule, or select many by --tag, --owner, --name, --state"
            raise InvalidInput(reason, code="invalid_reference")
        if receipt is not None:
            return cls(receipt=receipt)
        return cls(select=select) if select else cls(one=schedule_ref(*named))


def bulk_operation_id(verb: str, request_id: str | None, now: datetime) -> str:
    """The request id that the receipt will be called by."""
    return request_id or f"{verb}-{now:%Y%m%dT%H%M%SZ}-{token_hex(TOKEN)}"
