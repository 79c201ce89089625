"""Rules of commands besides their types, as far as intake can decide without a table (pure)."""

from dataclasses import dataclass, field
from datetime import datetime
from uuid import UUID

from harebell.contract.breakers import BreakerClose, BreakerCommand, BreakerOpen
from harebell.contract.calendar import CalendarPut
from harebell.contract.command_base import CommandBase
from harebell.contract.commands import (
    BulkCommand,
    DeadLetterEdit,
    RunFail,
    ScheduleBackfill,
    SchedulePatch,
    SchedulePause,
    SchedulePut,
    ScheduleResume,
)
from harebell.contract.downstream import current_name
from harebell.contract.errors import InvalidInput
from harebell.contract.message import quoted
from harebell.contract.types import duration_text, instant_text
from harebell.domain.default_schedule import DefaultWhen
from harebell.domain.literal_secrets import check_edited_secrets
from harebell.domain.retry import RESERVED_CODES
from harebell.domain.run_states import RETENTION, Reason, ScheduleState
from harebell.domain.validation import check_content
from harebell.intake.commands.definition import (
    TargetPolicy,
    check_definition,
    check_patch,
    check_target_of,
)
from harebell.intake.commands.quotas import MessageQuotas, TenantMeters


@dataclass(frozen=True, slots=True)
class IntakePolicy:
    """The settings of intake that decide about commands."""

    targets: TargetPolicy = field(default_factory=TargetPolicy)
    default_when: DefaultWhen = field(default_factory=DefaultWhen)
    meters: TenantMeters = field(default_factory=TenantMeters)

    def quotas_of(self, tenant: str, now: datetime) -> MessageQuotas:
        """Return the quotas of one message of the tenant."""
        quotas = self.targets.policies.current.of(tenant).quotas
        return MessageQuotas(tenant=tenant, quotas=quotas, meters=self.meters, now=now)


def with_defaults(command: CommandBase, tenant: str, policy: IntakePolicy) -> CommandBase:
    """Return the command. A `schedule.put` without `when` gets the default of its tenant."""
    if isinstance(command, SchedulePut) and command.when is None:
        return command.model_copy(update={"when": policy.default_when.for_tenant(tenant)})
    return command


def check_command(
    command: CommandBase,
    schedule_id: UUID | None,
    policy: IntakePolicy,
    *,
    tenant: str,
    accepted_at: datetime,
) -> None:
    """Raise `Rejected` with the field of the first rule that the command breaks."""
    targets = policy.targets
    if isinstance(command, SchedulePut):
        check_definition(
            command, schedule_id, tenant=tenant, accepted_at=accepted_at, target_policy=targets
        )
        _check_future(command.effective_at, accepted_at, "effective_at")
    if isinstance(command, SchedulePatch):
        check_patch(
            command.set_, schedule_id, tenant=tenant, accepted_at=accepted_at, target_policy=targets
        )
        _check_future(command.effective_at, accepted_at, "effective_at")
    if isinstance(command, DeadLetterEdit):
        check_target_of(command.target, tenant, targets)
        check_edited_secrets(command.target, allows=targets.allows_literals(tenant))
    if isinstance(command, SchedulePause | BreakerOpen | BreakerClose):
        _check_future(command.until, accepted_at, "until")
    if isinstance(command, BreakerCommand):
        _check_downstream(command)
    if isinstance(command, ScheduleBackfill):
        _check_backfill(command, accepted_at)
    if isinstance(command, BulkCommand):
        _check_selection(command)
    if isinstance(command, CalendarPut):
        check_content(command)
    if isinstance(command, RunFail):
        _check_failure_code(command)


def _check_future(time: datetime | None, accepted_at: datetime, field: str) -> None:
    if time is not None and time <= accepted_at:
        reason = (
            f"The time must be after {instant_text(accepted_at)} (now), not {instant_text(time)}."
        )
        raise InvalidInput(reason, field=field, code="not_in_future")


def _check_downstream(command: BreakerCommand) -> None:
    if current_name(command.downstream) is None:
        reason = (
            "The downstream must be a host with its port, such as acme.example:443, "
            f"not {quoted(command.downstream)}."
        )
        raise InvalidInput(reason, field="downstream", code="invalid_downstream")


def _check_backfill(command: ScheduleBackfill, accepted_at: datetime) -> None:
    if command.from_ > command.to:
        reason = f"The end must not be before {instant_text(command.from_)}, the time in `from`."
        raise InvalidInput(reason, field="to", code="invalid_bounds")
    if accepted_at - command.from_ > RETENTION:
        days = duration_text(RETENTION)
        reason = f"The start must be at most {days} in the past, not {instant_text(command.from_)}."
        raise InvalidInput(reason, field="from", code="too_late")
    if command.to > accepted_at:
        now, end = instant_text(accepted_at), instant_text(command.to)
        reason = f"The end must not be after {now} (now), but it is {end}."
        raise InvalidInput(reason, field="to", code="not_in_past")


def _check_failure_code(command: RunFail) -> None:
    """Refuse the codes that Harebell itself gives, because the state of a run follows from them."""
    if command.code in RESERVED_CODES or command.code in set(Reason):
        reason = f"The code {quoted(command.code)} is reserved, because Harebell gives it itself."
        raise InvalidInput(reason, field="code", code="reserved_code")


def _check_selection(command: BulkCommand) -> None:
    if command.bulk_operation_id is not None and not isinstance(command, ScheduleResume):
        reason = "The field bulk_operation_id is only valid in schedule.resume."
        raise InvalidInput(reason, field="bulk_operation_id", code="invalid_reference")
    state = command.select and command.select.state
    if state is not None and state not in set(ScheduleState):
        reason = f"The state must be one of {', '.join(ScheduleState)}, not {quoted(state)}."
        raise InvalidInput(reason, field="select.state", code="invalid_state")
