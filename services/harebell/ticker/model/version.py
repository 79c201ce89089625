"""One version of a schedule, the calendars that it pins, and its handover to the next version."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import TypeAlias, TypeVar
from uuid import UUID

import orjson

from harebell.contract.calendar import CalendarContent, PinnedCalendar
from harebell.contract.errors import InvalidInput
from harebell.contract.schedule import Definition, SchedulingPolicy, canonical_json
from harebell.contract.ticket import RunSpec
from harebell.domain.recurrence import Recurrence, recurrence_of

CalendarKey: TypeAlias = tuple[str, str]  # tenant, name
D = TypeVar("D", bound=Definition)


# Each command creates a version, and a frozen class with cached properties needs more time for it.
@dataclass(slots=True, kw_only=True)
class Version:
    """One version of a schedule, which nothing changes."""

    schedule_id: UUID
    number: int
    tenant: str
    policy: SchedulingPolicy  # every field of the definition that planning reads
    definition_json: str  # without defaults, as stored
    run_spec: str  # JSON, as stored and as the tickets contain it
    accepted_at: datetime
    effective_at: datetime | None = None  # None: at once
    actor: str | None = None
    note: str | None = None
    anchor_at: datetime | None = None  # None: `since`
    _definition: Definition | None = field(default=None, init=False, repr=False, compare=False)
    _recurrence: Recurrence | None = field(default=None, init=False, repr=False, compare=False)

    @classmethod
    def create(
        cls,
        schedule_id: UUID,
        number: int,
        *,
        tenant: str,
        definition: Definition,
        at: datetime,
        effective_at: datetime | None = None,
        actor: str | None = None,
        note: str | None = None,
        trace: Mapping[str, str] | None = None,
    ) -> "Version":
        """Return the version of `definition` that was accepted at `at`.

        `trace` is the JSON of the trace of the command.
        """
        as_json = definition.to_json()
        return cls(
            schedule_id=schedule_id,
            number=number,
            tenant=tenant,
            policy=definition,
            definition_json=canonical_json(as_json),
            run_spec=orjson.dumps(RunSpec.from_definition(tenant, as_json, trace=trace)).decode(),
            accepted_at=at,
            effective_at=effective_at,
            actor=actor,
            note=note,
        )

    @property
    def definition(self) -> Definition:
        if isinstance(self.policy, Definition):
            return self.policy
        if self._definition is None:
            self._definition = Definition.model_validate_json(self.definition_json)
        return self._definition

    @property
    def recurrence(self) -> Recurrence:
        """Return the recurrence. Raise `InvalidCron` or `UnknownTimezone`."""
        if self._recurrence is None:
            self._recurrence = recurrence_of(self.policy, self.schedule_id, self.anchor)
        return self._recurrence

    @property
    def since(self) -> datetime:
        """Return the time from which the version requires runs."""
        return self.effective_at or self.accepted_at

    @property
    def anchor(self) -> datetime:
        """Return the time from which relative times count.

        A change of another field keeps the anchor and therefore shifts no run.
        """
        return self.anchor_at or self.since


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionHandover:
    """The change from one version in force to the next, with the times that each one decided.

    Times up to `planned_until` were decided by the old version, and those after `planned_from` by
    the new one. The audit reads both.
    """

    schedule_id: UUID
    from_version: int
    planned_until: datetime
    to_version: int
    planned_from: datetime


class VersionStatus(StrEnum):
    """The status of a version, as users see it."""

    PENDING = "pending"
    ACTIVE = "active"
    SUPERSEDED = "superseded"  # another change replaced it before its effective time
    FAILED = "failed"  # not computable at its effective time
    MISSED = "missed"  # the effective time had passed before a ticker applied the change


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
    for use, listed in lists:
        for index, name in enumerate(listed):
            calendar = calendars.get((tenant, name))
            if calendar is None or calendar.is_deleted:
                raise InvalidInput(
                    f"The calendar must exist in this tenant, but {name} does not.",
                    field=f"calendars.{use}[{index}]",
                    code="unknown_calendar",
                )
            pinned[name] = calendar.pinned
    return definition.model_copy(update={"pinned_calendars": list(pinned.values())})
