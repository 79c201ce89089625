"""Stored calendars, and the definitions that contain their versions in force."""

from dataclasses import dataclass
from datetime import datetime
from typing import TypeAlias, TypeVar

from harebell.contract.calendar import CalendarContent, PinnedCalendar
from harebell.contract.errors import InvalidInput
from harebell.contract.schedule import Definition

CalendarKey: TypeAlias = tuple[str, str]  # tenant, name
D = TypeVar("D", bound=Definition)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredCalendar:
    """The latest version of a calendar. A deleted calendar keeps its row."""

    tenant: str
    name: str
    version: int
    content: CalendarContent
    accepted_at: datetime
    is_deleted: bool = False
    actor: str | None = None
    note: str | None = None

    @property
    def key(self) -> CalendarKey:
        return self.tenant, self.name

    @property
    def pinned(self) -> PinnedCalendar:
        """Return the calendar as a version of a schedule contains it."""
        fields = self.content.model_dump(by_alias=True)
        return PinnedCalendar.model_validate({**fields, "name": self.name, "version": self.version})


def with_pinned_calendars(
    definition: D, calendars: dict[CalendarKey, StoredCalendar], tenant: str
) -> D:
    """Return the definition with the latest versions of its calendars.

    Return the same definition if it names none, as most do.
    Raise `InvalidInput` for a calendar that does not exist.
    """
    names = definition.calendars
    if names is None:
        if not definition.pinned_calendars:
            return definition
        return definition.model_copy(update={"pinned_calendars": []})
    pinned: dict[str, PinnedCalendar] = {}
    lists = ("exclude", names.exclude), ("include", names.include), ("blackout", names.blackout)
    for field, listed in lists:
        for index, name in enumerate(listed):
            calendar = calendars.get((tenant, name))
            if calendar is None or calendar.is_deleted:
                raise InvalidInput(
                    f"The calendar must exist in this tenant, but {name} does not.",
                    field=f"calendars.{field}[{index}]",
                    code="unknown_calendar",
                )
            pinned[name] = calendar.pinned
    return definition.model_copy(update={"pinned_calendars": list(pinned.values())})
