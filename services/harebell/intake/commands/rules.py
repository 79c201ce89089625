"""Rules of commands besides their types, as far as intake can decide without a table (pure)."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final
from uuid import UUID

from pydantic import ValidationError

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
from harebell.contract.message import quoted, to_invalid_input
from harebell.contract.schedule import Definition
from harebell.contract.target import Target, TaskTarget
from harebell.contract.types import duration_text, instant_text
from harebell.domain.default_schedule import DefaultWhen
from harebell.domain.retry import RESERVED_CODES
from harebell.domain.run_states import RETENTION, Reason, ScheduleState
from harebell.domain.target_check import (
    check_edited_secrets,
    check_literals,
    check_pool,
    check_priority,
    check_secrets,
    check_target,
)
from harebell.domain.tenant_policy import LiteralSecrets, PolicySource, TenantPolicies
from harebell.domain.url_policy import Egress
from harebell.domain.validation import (
    check_calendars,
    check_content,
    check_expiry,
    check_pinned,
    check_when,
)
from harebell.intake.commands.quotas import MessageQuotas, TenantMeters

SET: Final = "set"
_FIELDS: Final = {field.alias or name for name, field in Definition.model_fields.items()}
_WITHOUT_DEFAULT: Final = ("when", "target")
# The stored definition may contain the fields that a patch of `when` or `target` lacks.
_ERRORS_OF_PARTS: Final = frozenset({"missing", "invalid_when", "invalid_target"})
# Each field of a patch is checked alone, in a definition with these required fields.
_REQUIRED_FIELDS: Final = {"when": {"now": True}, "target": {"task": {"name": "unchanged"}}}


@dataclass(frozen=True, slots=True)
class TargetPolicy:
    """The networks of HTTP targets, the names of all tasks, and the policies of the tenants."""

    egress: Egress = field(default_factory=Egress)
    tasks: frozenset[str] | None = None  # None: intake accepts every task name
    policies: PolicySource = field(default_factory=TenantPolicies.unrestricted)

    def allows_literals(self, tenant: str) -> bool:
        """Return whether the tenant may write literal secrets into its definitions."""
        return self.policies.current.of(tenant).literal_secrets is not LiteralSecrets.REFUSE


def check_definition(
    definition: Definition,
    schedule_id: UUID | None,
    *,
    tenant: str,
    accepted_at: datetime,
    target_policy: TargetPolicy,
) -> None:
    """Raise `Rejected` with the field of the first rule that the definition breaks."""
    policy = target_policy.policies.current.of(tenant)
    check_when(definition.when, schedule_id, now=accepted_at)
    check_expiry(definition.when, definition.expires_after)
    check_calendars(definition.calendars, definition.when)
    check_pinned(definition.pinned_calendars)
    check_priority(definition.priority, policy)
    check_pool(definition.pool, policy)
    check_target_of(definition.target, tenant, target_policy)
    check_secrets(
        definition.target, "target", allows_literals=target_policy.allows_literals(tenant)
    )


def check_target_of(
    target: Target, tenant: str, target_policy: TargetPolicy, *, field: str = "target"
) -> None:
    """Raise `Rejected` for a target that the installation or the tenant policy does not allow."""
    policy = target_policy.policies.current.of(tenant)
    check_target(target, tenant, policy, egress=target_policy.egress, field=field)
    if isinstance(target, TaskTarget) and target_policy.tasks is not None:
        name = target.task.name
        if name not in target_policy.tasks:
            reason = (
                f"The task must be one of the known tasks of the executors, not {quoted(name)}."
            )
            raise InvalidInput(reason, field=f"{field}.task.name", code="unknown_task")


def check_patch(
    patch: Mapping[str, Any],
    schedule_id: UUID | None,
    *,
    tenant: str,
    accepted_at: datetime,
    target_policy: TargetPolicy,
) -> None:
    """Raise `Rejected` with the field of the first change that is invalid in every definition."""
    if not patch:
        reason = "The patch must change at least one field, and the patch is empty."
        raise InvalidInput(reason, field=SET, code="empty_patch")
    policy = target_policy.policies.current.of(tenant)
    for name, value in patch.items():
        _check_name(name, value)
        if name == "target":
            check_literals(
                value, f"{SET}.target", allows_literals=target_policy.allows_literals(tenant)
            )
        definition = _definition_with(name, value)
        if definition is None:
            continue
        if name == "when":
            check_when(definition.when, schedule_id, now=accepted_at, field=f"{SET}.when")
        elif name == "target":
            check_target_of(definition.target, tenant, target_policy, field=f"{SET}.target")
            check_secrets(definition.target, f"{SET}.target")
        elif name == "pool":
            check_pool(definition.pool, policy, f"{SET}.pool")
        elif name == "priority":
            check_priority(definition.priority, policy, f"{SET}.priority")


def _check_name(name: str, value: object) -> None:
    field = f"{SET}.{name}"
    if name not in _FIELDS:
        reason = f"The field {quoted(name)} is unknown."
        raise InvalidInput(reason, field=field, code="unknown_field")
    check_pinned(name == "pinned_calendars", field)
    if name == "key":
        reason = "A patch must not change the key, because the schedule id is derived from the key."
        raise InvalidInput(reason, field=field, code="immutable_field")
    if name in _WITHOUT_DEFAULT and value is None:
        reason = f"The field {name} must have a value, because {name} has no default."
        raise InvalidInput(reason, field=field, code="missing_field")


def _definition_with(name: str, value: object) -> Definition | None:
    """Return a definition with the field, or None for a part that the stored definition completes.

    Raise `InvalidInput` for a value that is invalid in every definition.
    """
    given = {} if value is None else {name: _without_nulls(value)}
    try:
        return Definition.model_validate({**_REQUIRED_FIELDS, **given})
    except ValidationError as error:
        errors = error.errors(include_url=False)
    for each in errors:
        if each["type"] not in _ERRORS_OF_PARTS:
            each["loc"] = (SET, *each["loc"])
            raise to_invalid_input(each)
    return None


def _without_nulls(value: Any) -> Any:  # noqa: ANN401  # decoded JSON
    """Return the value without the fields that are null, because null removes a field."""
    if not isinstance(value, dict):
        return value
    return {name: _without_nulls(each) for name, each in value.items() if each is not None}


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
