"""What a command must hold beyond its shape, as far as that can be known at the door."""

from dataclasses import dataclass, field
from datetime import datetime
from uuid import UUID

from harebell.contract.breakers import BreakerClose, BreakerOpen
from harebell.contract.command_base import CommandBase
from harebell.contract.commands import (
    BulkCommand,
    ScheduleBackfill,
    SchedulePatch,
    SchedulePause,
    SchedulePut,
    ScheduleResume,
)
from harebell.contract.errors import InvalidInput
from harebell.contract.message import quoted
from harebell.contract.types import duration_text, instant_text
from harebell.domain.default_schedule import DefaultWhen
from harebell.domain.run_states import RETENTION, ScheduleState
from harebell.intake.commands.definition import TargetPolicy, check_definition, check_patch


@dataclass(frozen=True, slots=True)
class IntakePolicy:
    """What the operator of this door allows and fills in."""

    may_call: TargetPolicy = field(default_factory=TargetPolicy)
    default_when: DefaultWhen = field(default_factory=DefaultWhen)


def with_defaults(command: CommandBase, tenant: str, rules: IntakePolicy) -> CommandBase:
    """With what its tenant need not say."""
    if isinstance(command, SchedulePut) and command.when is None:
        return command.model_copy(update={"when": rules.default_when.of(tenant)})
    return command


def check_command(
    command: CommandBase, schedule_id: UUID | None, rules: IntakePolicy, *, accepted_at: datetime
) -> None:
    """Raises `Rejected` with the field."""
    may_call = rules.may_call
    if isinstance(command, SchedulePut):
        check_definition(command, schedule_id, accepted_at=accepted_at, may_call=may_call)
        _check_ahead(command.effective_at, accepted_at, "effective_at")
    if isinstance(command, SchedulePatch):
        check_patch(command.set_, schedule_id, accepted_at=accepted_at, may_call=may_call)
        _check_ahead(command.effective_at, accepted_at, "effective_at")
    if isinstance(command, SchedulePause | BreakerOpen | BreakerClose):
        _check_ahead(command.until, accepted_at, "until")
    if isinstance(command, ScheduleBackfill):
        _check_backfill(command, accepted_at)
    if isinstance(command, BulkCommand):
        _check_selection(command)


def _check_ahead(moment: datetime | None, accepted_at: datetime, field: str) -> None:
    if moment is not None and moment <= accepted_at:
        reason = f"must lie in the future; now it is {instant_text(accepted_at)}"
        raise InvalidInput(reason, field=field, code="not_in_future")


def _check_backfill(command: ScheduleBackfill, accepted_at: datetime) -> None:
    if command.from_ > command.to:
        raise InvalidInput("lies before from", field="to", code="invalid_bounds")
    if accepted_at - command.from_ > RETENTION:
        reason = f"is over {duration_text(RETENTION)} past, which is as far as the record goes"
        raise InvalidInput(reason, field="from", code="too_late")
    if command.to > accepted_at:
        reason = f"lies ahead, where the timetable rules; now it is {instant_text(accepted_at)}"
        raise InvalidInput(reason, field="to", code="not_in_past")


def _check_selection(command: BulkCommand) -> None:
    if command.bulk_operation_id is not None and not isinstance(command, ScheduleResume):
        reason = "is what schedule.resume takes, to undo a pause"
        raise InvalidInput(reason, field="bulk_operation_id", code="invalid_reference")
    state = command.select and command.select.state
    if state is not None and state not in set(ScheduleState):
        reason = f"must be one of {', '.join(ScheduleState)}; got {quoted(state)}"
        raise InvalidInput(reason, field="select.state", code="invalid_state")
