"""One version of a schedule, and what became of it: values. Pure."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from functools import cached_property
from uuid import UUID

import orjson

from harebell.contract.schedule import Definition, SchedulingPolicy, canonical_json
from harebell.contract.ticket import RunSpec
from harebell.domain.recurrence import RESOLUTION, Recurrence, recurrence_of


@dataclass(frozen=True)
class Version:
    """One immutable version of a schedule."""

    schedule_id: UUID
    number: int
    tenant: str
    policy: SchedulingPolicy  # all that planning reads
    definition_json: str  # JSON of the definition without its defaults, as it is stored
    run_spec: str  # JSON of `Work`, as its tickets carry it
    accepted_at: datetime
    effective_at: datetime | None = None  # None: at once
    actor: str | None = None  # who made it
    note: str | None = None
    anchor_at: datetime | None = None  # None: from `since` on

    @classmethod
    def create(
        cls,
        id_: UUID,
        number: int,
        *,
        tenant: str,
        definition: Definition,
        at: datetime,
        effective_at: datetime | None = None,
        actor: str | None = None,
        note: str | None = None,
    ) -> "Version":
        told = definition.to_json()
        work = orjson.dumps(RunSpec.from_definition(tenant, told)).decode()
        text = canonical_json(told)
        return cls(id_, number, tenant, definition, text, work, at, effective_at, actor, note)

    @cached_property
    def definition(self) -> Definition:
        if isinstance(self.policy, Definition):
            return self.policy
        return Definition.model_validate_json(self.definition_json)

    @cached_property
    def recurrence(self) -> Recurrence:
        """Raises what `occurrences.timetable` does."""
        return recurrence_of(self.policy, self.schedule_id, self.anchor)

    @property
    def since(self) -> datetime:
        """From when on it owes anything."""
        return self.effective_at or self.accepted_at

    @property
    def anchor(self) -> datetime:
        """That relative times are reckoned from: a change of other things does not shift them."""
        return self.anchor_at or self.since

    def includes(self, instant: datetime) -> bool:
        """Whether the instant is one of its timetable's."""
        return self.recurrence.next_after(instant - RESOLUTION) == instant


@dataclass(frozen=True, slots=True)
class VersionHandover:
    """A version comes into force after another: which instants are whose to decide, for audits."""

    schedule_id: UUID
    from_version: int
    planned_until: datetime  # every instant up to here was decided by the version before
    to_version: int
    planned_from: datetime  # what comes after this is decided by the new one


class VersionStatus(StrEnum):
    """What became of a version: what users asked for, and whether they got it."""

    PENDING = "pending"
    ACTIVE = "active"
    SUPERSEDED = "superseded"  # another change came before it
    FAILED = "failed"  # it could not be computed when its time came
    MISSED = "missed"  # its time had passed when a ticker came to it
