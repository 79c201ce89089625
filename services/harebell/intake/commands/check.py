"""The check of a command message: one message in, its checked items and rejections out (pure)."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final
from uuid import UUID

import orjson

from harebell.contract.accepted_commands import AcceptedCommand, AcceptedCommands
from harebell.contract.amqp_names import OPERATIONS_TENANT, check_version, message_key
from harebell.contract.breakers import BREAKER_COMMANDS
from harebell.contract.command_base import CommandBase
from harebell.contract.commands import (
    COMMANDS,
    MAX_BODY,
    MAX_ITEM,
    MAX_ITEMS,
    ReplayJobStart,
    RunCancel,
    RunReport,
    RunResolve,
    ScheduleBackfill,
    ScheduleCommand,
    SchedulePut,
    ScheduleTrigger,
)
from harebell.contract.errors import InvalidInput, NotAllowed, Rejected
from harebell.contract.ids import RunKey, schedule_id, schedule_id_of_request
from harebell.contract.json_codec import decode
from harebell.contract.message import parse, quoted
from harebell.contract.responses import ErrorDetail, ErrorResponse, error_response
from harebell.contract.trace import TraceContext
from harebell.contract.types import Json
from harebell.domain.sender import UNKNOWN_TENANT, Sender, parse_routing_key
from harebell.intake.commands.quotas import MessageQuotas
from harebell.intake.commands.rules import IntakePolicy, check_command, with_defaults

NOT_JSON: Final = "not_json"
MAX_KEY_SHOWN: Final = 256  # characters of the key of a rejected item that its event contains


@dataclass(frozen=True, slots=True)
class CommandPosition:
    """The tenant and the message of a command, and its index if the body is an array."""

    tenant: str
    message_id: str | None
    index: int | None


def request_id_of(command: CommandBase, position: CommandPosition) -> str | None:
    """Return the request id of the body, or else the message id.

    Raise `InvalidInput` for a command without both ids whose repeat would have another effect.
    """
    if command.is_bulk and position.index is not None and command.request_id is None:
        reason = (
            "A bulk operation in an array must have a request_id, "
            "because the request_id becomes the id of the bulk operation."
        )
        raise InvalidInput(reason, field="request_id", code="missing_request_id")
    request_id = command.request_id or position.message_id
    if request_id is None and _needs_request_id(command):
        reason = (
            "The command must have a request_id, or its message a message_id, "
            "so that Harebell recognises a retry."
        )
        raise InvalidInput(reason, field="request_id", code="missing_request_id")
    return request_id


def schedule_id_of(
    command: CommandBase, request_id: str | None, position: CommandPosition
) -> UUID | None:
    """Return the id of the schedule, or None for a command that names no schedule.

    The ticker checks whether a given id belongs to the tenant.
    """
    match command:
        case SchedulePut(key=str(key)) | ScheduleCommand(key=str(key)):
            return schedule_id(position.tenant, key)
        case SchedulePut() if request_id is not None:
            return schedule_id_of_request(position.tenant, request_id, position.index)
        case ScheduleCommand(id=UUID() as given):
            return given
        case RunCancel(run_id=run) | RunResolve(run_id=run) | RunReport(run_id=run):
            return RunKey.parse(run).schedule_id
        case _:
            return None


def _needs_request_id(command: CommandBase) -> bool:
    if isinstance(command, SchedulePut):
        return command.key is None
    creates_runs = isinstance(command, ScheduleTrigger | ScheduleBackfill | ReplayJobStart)
    return creates_runs or command.is_bulk


@dataclass(frozen=True, slots=True, kw_only=True)
class IncomingRequest:
    """The body of a command or query message, and the properties that intake reads."""

    routing_key: str
    body: bytes
    message_id: str | None = None
    reply_to: str | None = None  # null if the message needs no response
    correlation_id: str | None = None
    sender: Sender | None = None  # null if no gate has checked the message
    type: str | None = None
    trace: TraceContext | None = None  # of the publisher, or of the span of the command


@dataclass(frozen=True, slots=True)
class RejectedItem:
    """A rejected item, its key if the item had one, and its error response."""

    index: int
    key: str | None
    response: ErrorResponse


@dataclass(frozen=True, slots=True)
class CheckResult:
    """The checked items of one message, and its rejected items.

    A message that is rejected as a whole has one item, which is rejected.
    """

    accepted: AcceptedCommands
    rejections: tuple[RejectedItem, ...]

    @property
    def is_rejected(self) -> bool:
        """Return whether no item is left to pass on."""
        return len(self.rejections) == len(self.accepted.items)

    @property
    def not_json_error(self) -> ErrorDetail | None:
        """Return the error of a body that is not JSON.

        Such a message becomes a dead letter, because its body names no sender.
        """
        errors = (rejection.response.error for rejection in self.rejections)
        return next((error for error in errors if error.code == NOT_JSON), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Envelope:
    """The properties that all items of one message share."""

    tenant: str
    model: type[CommandBase]
    message_id: str | None
    single: bool
    accepted_at: datetime
    policy: IntakePolicy
    quotas: MessageQuotas


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageCheck:
    """The check of a message whose body contains items. Each item is checked alone."""

    request: IncomingRequest
    envelope: _Envelope
    values: Sequence[Json]

    @classmethod
    def begin(
        cls, request: IncomingRequest, *, accepted_at: datetime, policy: IntakePolicy
    ) -> "MessageCheck":
        """Check what all items share. Raise `Rejected` for the message as a whole."""
        tenant, verb = parse_routing_key(request.routing_key)
        model = _model(tenant, verb)
        check_version(request.type)
        message_id = _check_message_id(request.message_id)
        single, values = _values(request.body)
        envelope = _Envelope(
            tenant=tenant,
            model=model,
            message_id=message_id,
            single=single,
            accepted_at=accepted_at,
            policy=policy,
            quotas=policy.quotas_of(tenant, accepted_at),
        )
        return cls(request=request, envelope=envelope, values=values)

    def items(self) -> Iterator[AcceptedCommand]:
        """Check one item at a time."""
        for index, value in enumerate(self.values):
            yield _item(value, index, self.envelope)

    def result(self, items: Sequence[AcceptedCommand]) -> CheckResult:
        """Return the result of the message from the items that were checked."""
        shared = self.envelope
        return _result(
            self.request, items, self.values, accepted_at=shared.accepted_at, single=shared.single
        )


def reject_message(request: IncomingRequest, accepted_at: datetime, error: Rejected) -> CheckResult:
    """Return the result of a message that is rejected as a whole."""
    items = [AcceptedCommand(index=0, rejection=error_response(error))]
    return _result(request, items, [None], accepted_at=accepted_at, single=True)


def _result(
    request: IncomingRequest,
    items: Sequence[AcceptedCommand],
    values: Sequence[Json],
    *,
    accepted_at: datetime,
    single: bool,
) -> CheckResult:
    tenant, verb = parse_routing_key(request.routing_key)
    accepted = AcceptedCommands(
        tenant=tenant,
        verb=verb,
        actor=None if request.sender is None else request.sender.login,
        accepted_at=accepted_at,
        reply_to=request.reply_to,
        correlation_id=request.correlation_id,
        traceparent=None if request.trace is None else request.trace.traceparent,
        tracestate=None if request.trace is None else request.trace.tracestate,
        single=single,
        items=list(items),
    )
    return CheckResult(accepted, _rejections(items, values))


def check_tenant(tenant: str) -> None:
    """Raise `InvalidInput` for the tenant of an invalid routing key."""
    if tenant == UNKNOWN_TENANT:
        reason = "The routing key must begin with a valid tenant, such as default.schedule.put."
        raise InvalidInput(reason, code="invalid_tenant")


def check_operations(tenant: str, verb: str) -> None:
    """Raise `NotAllowed` unless the tenant is the operations tenant."""
    if tenant != OPERATIONS_TENANT:
        expected, found = message_key(OPERATIONS_TENANT, verb), message_key(tenant, verb)
        reason = f"The routing key must be {expected}, not {found}, because all tenants share this."
        raise NotAllowed(reason, code="not_a_tenants")


def _model(tenant: str, verb: str) -> type[CommandBase]:
    check_tenant(tenant)
    if verb not in COMMANDS:
        reason = f"The command must be one of {', '.join(COMMANDS)}, not {quoted(verb)}."
        raise InvalidInput(reason, code="unknown_command")
    if verb in BREAKER_COMMANDS:
        check_operations(tenant, verb)
    return COMMANDS[verb]


def _check_message_id(message_id: str | None) -> str | None:
    if message_id and "\x00" in message_id:
        reason = "The message id must not contain a NUL character, which PostgreSQL cannot store."
        raise InvalidInput(reason, field="message_id", code="nul_character")
    return message_id or None


def _values(body: bytes) -> tuple[bool, list[Json]]:
    """Return whether the body is a single value, and the items of the body."""
    if len(body) > MAX_BODY:
        reason = f"The message must have at most {MAX_BODY} bytes, not {len(body)}."
        raise InvalidInput(reason, code="too_large")
    value = decode(body)
    if not isinstance(value, list):
        return True, [value]
    if not value:
        reason = "The array must contain at least one command, and the array is empty."
        raise InvalidInput(reason, code="no_items")
    if len(value) > MAX_ITEMS:
        reason = f"The array must contain at most {MAX_ITEMS} commands, not {len(value)}."
        raise InvalidInput(reason, code="too_many_items")
    return False, value


def _item(value: Json, index: int, envelope: _Envelope) -> AcceptedCommand:
    array_index = None if envelope.single else index
    position = CommandPosition(envelope.tenant, envelope.message_id, array_index)
    try:
        command = with_defaults(_command(value, envelope), envelope.tenant, envelope.policy)
        request_id = request_id_of(command, position)
        schedule = schedule_id_of(command, request_id, position)
        check_command(
            command,
            schedule,
            envelope.policy,
            tenant=envelope.tenant,
            accepted_at=envelope.accepted_at,
        )
        envelope.quotas.check(command)
    except Rejected as error:
        within = "" if array_index is None else f"[{array_index}]"
        return AcceptedCommand(index=index, rejection=error_response(error, within=within))
    body = command.model_dump(mode="json", by_alias=True, exclude_unset=True, exclude_none=True)
    return AcceptedCommand(index=index, request_id=request_id, schedule_id=schedule, body=body)


def _command(value: Json, envelope: _Envelope) -> CommandBase:
    if not isinstance(value, dict):
        raise InvalidInput(f"The command must be an object, not {quoted(value)}.")
    command = parse(envelope.model, value)
    if (size := len(orjson.dumps(value))) > MAX_ITEM:
        reason = f"The command must have at most {MAX_ITEM} bytes, not {size}."
        raise InvalidInput(reason, code="too_large")
    if command.tenant not in (None, envelope.tenant):
        reason = (
            f"The tenant must be {envelope.tenant} as in the routing key, not {command.tenant}."
        )
        raise NotAllowed(reason, field="tenant", code="foreign_tenant")
    return command


def _rejections(
    items: Sequence[AcceptedCommand], values: Sequence[Json]
) -> tuple[RejectedItem, ...]:
    return tuple(
        RejectedItem(item.index, _key(value), item.rejection)
        for item, value in zip(items, values, strict=True)
        if item.rejection is not None
    )


def _key(value: Json) -> str | None:
    key = value.get("key") if isinstance(value, dict) else None
    return key if isinstance(key, str) and len(key) <= MAX_KEY_SHOWN else None
