"""The rules of the door: a message as it came in, a change of checked commands or refusals out."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

import orjson
from pydantic import TypeAdapter, ValidationError

from harebell.contract.accepted_commands import AcceptedCommand, AcceptedCommands
from harebell.contract.amqp_names import OPERATIONS_TENANT, check_version, message_key, split_key
from harebell.contract.breakers import BREAKER_COMMANDS
from harebell.contract.command_base import CommandBase
from harebell.contract.commands import COMMANDS, MAX_BODY, MAX_ITEM, MAX_ITEMS
from harebell.contract.errors import InvalidInput, NotAllowed, Rejected
from harebell.contract.json_codec import decode
from harebell.contract.message import parse, quoted
from harebell.contract.responses import ErrorDetail, ErrorResponse, error_response
from harebell.contract.types import Json, Tenant
from harebell.intake.commands.request_ids import CommandPosition, request_id_of, schedule_id_of
from harebell.intake.commands.rules import IntakePolicy, check_command, with_defaults

NOT_JSON: Final = "not_json"
UNKNOWN_TENANT: Final = "_unknown"  # whose routing key names no tenant; none can be called that
MAX_KEY_SHOWN: Final = 256  # characters of a refused item's key that others are told

DEFAULT_POLICY: Final = IntakePolicy()

_TENANT: Final[TypeAdapter[str]] = TypeAdapter(Tenant)


@dataclass(frozen=True, slots=True)
class IncomingRequest:
    """What came: the bytes, and those properties of the message that mean something."""

    routing_key: str
    body: bytes
    message_id: str | None = None
    reply_to: str | None = None  # where an answer may go
    correlation_id: str | None = None
    user_id: str | None = None  # verified by the broker
    type: str | None = None


@dataclass(frozen=True, slots=True)
class RejectedItem:
    """A refused item, for those who watch: its key, if it was seen to have one."""

    index: int
    key: str | None
    refusal: ErrorResponse


@dataclass(frozen=True, slots=True)
class CheckResult:
    """A message as a whole that is refused is a change with one refusal for its only item."""

    change: AcceptedCommands
    rejections: tuple[RejectedItem, ...]

    @property
    def is_refused(self) -> bool:
        """Nothing is left to pass on."""
        return len(self.rejections) == len(self.change.items)

    @property
    def unreadable(self) -> ErrorDetail | None:
        """Why it is no JSON at all: nobody may be waiting for the answer, so a person must see."""
        faults = (rejection.refusal.error for rejection in self.rejections)
        return next((fault for fault in faults if fault.code == NOT_JSON), None)


@dataclass(frozen=True, slots=True)
class _Envelope:
    """What all items of one message share."""

    tenant: str
    model: type[CommandBase]
    message_id: str | None
    single: bool
    accepted_at: datetime
    rules: IntakePolicy


def check(
    submission: IncomingRequest, *, accepted_at: datetime, rules: IntakePolicy = DEFAULT_POLICY
) -> CheckResult:
    tenant, verb = parse_routing_key(submission.routing_key)
    single, values = True, [None]
    try:
        model = _model(tenant, verb)
        check_version(submission.type)
        message_id = _message_id(submission.message_id)
        single, values = _values(submission.body)
        envelope = _Envelope(tenant, model, message_id, single, accepted_at, rules)
        items = [_item(value, index, envelope) for index, value in enumerate(values)]
    except Rejected as error:
        items = [AcceptedCommand(index=0, rejection=error_response(error))]
    change = AcceptedCommands(
        tenant=tenant,
        verb=verb,
        actor=submission.user_id,
        accepted_at=accepted_at,
        reply_to=submission.reply_to,
        correlation_id=submission.correlation_id,
        single=single,
        items=items,
    )
    return CheckResult(change, _rejections(items, values))


def parse_routing_key(routing_key: str) -> tuple[str, str]:
    """The tenant that a routing key proves, `NOBODY` if it is none, and the verb."""
    tenant, verb = split_key(routing_key)
    try:
        return _TENANT.validate_python(tenant), verb
    except ValidationError:
        return UNKNOWN_TENANT, verb


def check_tenant(tenant: str) -> None:
    if tenant == UNKNOWN_TENANT:
        reason = "the routing key must begin with a tenant, as default.schedule.put does"
        raise InvalidInput(reason, code="invalid_tenant")


def _model(tenant: str, verb: str) -> type[CommandBase]:
    check_tenant(tenant)
    if verb not in COMMANDS:
        reason = f"there is no command {quoted(verb)}; there are {', '.join(COMMANDS)}"
        raise InvalidInput(reason, code="unknown_command")
    if verb in BREAKER_COMMANDS:
        check_operations(tenant, verb)
    return COMMANDS[verb]


def check_operations(tenant: str, verb: str) -> None:
    """What concerns every tenant's runs is for those who may speak for none."""
    if tenant != OPERATIONS_TENANT:
        reason = f"is no tenant's: the routing key is {message_key(OPERATIONS_TENANT, verb)}"
        raise NotAllowed(reason, code="not_a_tenants")


def _message_id(message_id: str | None) -> str | None:
    if message_id and "\x00" in message_id:
        reason = "contains a NUL character, which cannot be stored"
        raise InvalidInput(reason, field="message_id", code="nul_character")
    return message_id or None


def _values(body: bytes) -> tuple[bool, list[Json]]:
    """The items, and whether there is one that is no array's."""
    if len(body) > MAX_BODY:
        reason = f"the message has {len(body)} bytes, over {MAX_BODY}"
        raise InvalidInput(reason, code="too_large")
    value = decode(body)
    if not isinstance(value, list):
        return True, [value]
    if not value:
        raise InvalidInput("the array is empty", code="no_items")
    if len(value) > MAX_ITEMS:
        reason = f"the array has {len(value)} items, over {MAX_ITEMS}"
        raise InvalidInput(reason, code="too_many_items")
    return False, value


def _item(value: Json, index: int, envelope: _Envelope) -> AcceptedCommand:
    place = None if envelope.single else index
    origin = CommandPosition(envelope.tenant, envelope.message_id, place)
    try:
        command = with_defaults(_command(value, envelope), envelope.tenant, envelope.rules)
        request_id = request_id_of(command, origin)
        schedule = schedule_id_of(command, request_id, origin)
        check_command(command, schedule, envelope.rules, accepted_at=envelope.accepted_at)
    except Rejected as error:
        within = "" if place is None else f"[{place}]"
        return AcceptedCommand(index=index, rejection=error_response(error, within=within))
    body = command.model_dump(mode="json", by_alias=True, exclude_unset=True, exclude_none=True)
    return AcceptedCommand(index=index, request_id=request_id, schedule_id=schedule, body=body)


def _command(value: Json, envelope: _Envelope) -> CommandBase:
    if not isinstance(value, dict):
        raise InvalidInput(f"must be an object; got {quoted(value)}")
    command = parse(envelope.model, value)
    if len(orjson.dumps(value)) > MAX_ITEM:
        raise InvalidInput(f"has over {MAX_ITEM} bytes", code="too_large")
    if command.tenant not in (None, envelope.tenant):
        reason = f"the routing key says {envelope.tenant}"
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
