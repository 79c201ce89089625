"""A command with its context, the runs that it names, and the schedule that it changes."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Final, NamedTuple
from uuid import UUID

from harebell.contract.command_base import CommandBase
from harebell.contract.commands import (
    RunCancel,
    RunResolve,
    ScheduleCommand,
    SchedulePut,
    ScheduleSkip,
    ScheduleTrigger,
)
from harebell.contract.errors import Conflict, NotFound
from harebell.contract.ids import RunKey
from harebell.contract.types import truncate_ms
from harebell.contract.when import At
from harebell.domain.recurrence import RESOLUTION
from harebell.domain.run_states import ScheduleState
from harebell.ticker.model.unit_of_work import ScheduleRecord, UnitOfWork

MAX_TRIGGER_TIMES: Final = 20  # milliseconds that may already have a run when a trigger comes

_NOT_FOUND: Final = "The schedule does not exist."


class FoundTimes(NamedTuple):
    """The scheduled times of a range in a version, one more than a backfill may have at most."""

    version: int
    times: Sequence[datetime]


class CommandContext(NamedTuple):
    """One command with its tenant, schedule, actor and times.

    A tuple, because the ticker copies it for each command (decision 20).
    """

    tenant: str
    command: CommandBase
    schedule_id: UUID | None  # None: a bulk operation or a calendar
    accepted_at: datetime
    actor: str | None
    applied_at: datetime | None = None  # None: at once
    trace: Mapping[str, str] | None = None  # the JSON of a `TraceOrigin`
    is_redelivered: bool = False  # a delayed message that intake may have accepted before
    found_times: FoundTimes | None = None  # of a backfill, from before its transaction

    @property
    def named_schedule(self) -> UUID | None:
        """Return the schedule that the command names by an id, which may be of another tenant.

        The id of a key is derived from the tenant.
        """
        match self.command:
            case RunCancel() | RunResolve() | ScheduleCommand(id=UUID()):
                return self.schedule_id
            case _:
                return None

    @property
    def named_runs(self) -> list[RunKey]:
        """Return the keys of the runs that the command names or may create."""
        if self.schedule_id is None:
            return []
        match self.command:
            case RunCancel(run_id=run_id) | RunResolve(run_id=run_id):
                times = [RunKey.parse(run_id).scheduled_for]
            case ScheduleSkip(at=at):
                times = [at]
            case SchedulePut(when=At(at=at), revive=revive) if revive or at <= self.accepted_at:
                times = [at]  # an earlier put of this key may have had the same time
            case ScheduleTrigger():
                first = truncate_ms(self.accepted_at)
                times = [first + n * RESOLUTION for n in range(MAX_TRIGGER_TIMES)]
            case _:
                return []
        return [RunKey(time, self.schedule_id) for time in times]


def find_schedule(unit: UnitOfWork, context: CommandContext) -> ScheduleRecord:
    """Return the schedule of the command. Raise `NotFound`, or `Conflict` after a later change."""
    record = find_schedule_of_run(unit, context)
    if record.state is ScheduleState.DELETED:
        raise NotFound(_NOT_FOUND)
    return record


def find_schedule_of_run(unit: UnitOfWork, context: CommandContext) -> ScheduleRecord:
    """Return the schedule of a command to a run, which may also be deleted."""
    record = None if context.schedule_id is None else unit.schedules.get(context.schedule_id)
    if record is None or record.version.tenant != context.tenant:
        raise NotFound(_NOT_FOUND)
    reject_stale(record, context)
    return record


def reject_stale(record: ScheduleRecord, context: CommandContext) -> None:
    """Raise `Conflict` if a change that was accepted later is already applied."""
    if context.accepted_at < record.changed_at:
        raise Conflict(
            "The command must be newer than the last applied change of the schedule.", code="stale"
        )
