"""The options that select one schedule by name, or several schedules for a bulk operation."""

from dataclasses import dataclass
from datetime import datetime
from secrets import token_hex
from typing import Final

from harebell.cli.arguments.schedule_ref import ScheduleRefOptions
from harebell.cli.framework.options import NameFilter, Note, Owner, RequestId, State, Tag
from harebell.client.requests import ScheduleRef
from harebell.contract.errors import InvalidInput

TOKEN_BYTES: Final = 3  # random bytes that keep the generated ids of two bulk operations apart


@dataclass(frozen=True, slots=True, kw_only=True)
class SelectionOptions(ScheduleRefOptions):
    """The options of `schedule pause`, `schedule resume` and `schedule cancel`."""

    tag: Tag = None
    owner: Owner = None
    name: NameFilter = None
    state: State = None
    note: Note = None
    request_id: RequestId = None

    def selection(self, bulk_operation: str | None = None) -> "ScheduleSelection":
        """Return the selected schedules.

        Raises `InvalidInput` unless the options contain exactly one of a schedule, a filter and
        the id of a bulk operation.
        """
        fields = {"tag": self.tag, "owner": self.owner, "name": self.name, "state": self.state}
        select = {name: value for name, value in fields.items() if value is not None}
        if sum((self.is_named, bool(select), bulk_operation is not None)) != 1:
            raise InvalidInput(
                "The command needs either one schedule, or a filter "
                "(--tag, --owner, --name, --state) that selects several schedules.",
                code="invalid_reference",
            )
        if bulk_operation is not None:
            return ScheduleSelection(bulk_operation_id=bulk_operation)
        return ScheduleSelection(select=select) if select else ScheduleSelection(one=self.ref)


@dataclass(frozen=True, slots=True)
class ScheduleSelection:
    """The schedules of a command. Exactly one of the fields has a value."""

    one: ScheduleRef | None = None
    select: dict[str, str] | None = None
    bulk_operation_id: str | None = None


def bulk_operation_id(verb: str, request_id: str | None, now: datetime) -> str:
    """Return the id of a bulk operation: the request id, or a generated id."""
    return request_id or f"{verb}-{now:%Y%m%dT%H%M%SZ}-{token_hex(TOKEN_BYTES)}"
