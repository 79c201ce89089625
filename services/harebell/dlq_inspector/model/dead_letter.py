"""Dead letters: the conversion of dead-lettered messages and of imports to stored rows."""

import base64
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, Final, TypeGuard
from uuid import UUID

import orjson

from harebell.contract.amqp_names import OPERATIONS_TENANT, message_type
from harebell.contract.commands import MAX_BODY
from harebell.contract.dead_letter import DeadMessage, DeadRun, ExportedDeadLetter
from harebell.contract.errors import InvalidInput
from harebell.contract.ids import (
    RunKey,
    dead_message_id,
    dead_run_id,
    imported_dead_letter_id,
    older_dead_message_id,
    older_dead_run_id,
)
from harebell.contract.json_codec import decode
from harebell.contract.message import parse
from harebell.contract.redaction import redact_bytes, redact_definition
from harebell.contract.types import EARLIEST, LATEST, instant_text
from harebell.dlq_inspector.model.fingerprint import Fingerprint, fingerprint
from harebell.dlq_inspector.model.owner import OwnedPart, owned_parts, tenant_of_request
from harebell.messaging.topology.bus import DEAD_LETTERS

UNREADABLE: Final = "unreadable"

MAX_STORED_BODY: Final = MAX_BODY  # bytes of a message body; a longer body is truncated
MAX_MESSAGE_ITEMS: Final = 10_000  # items of one message; Harebell sends some hundreds at most
MAX_NAME_LENGTH: Final = 256  # characters of a reason, an error code or a schedule key
MAX_ERROR_LENGTH: Final = 1024  # characters of an error text; the payload contains the whole text
MAX_REPLAY_NUMBER: Final = 2**31 - 1
MAX_JSON_DEPTH: Final = 64  # levels; a payload has at most 32, and a dead letter adds a few
TOO_DEEP: Final = "(nested too deeply to store)"
MAX_CLOCK_SKEW: Final = timedelta(minutes=1)  # of a service whose dead letter is imported

_RUN_DEAD: Final = message_type("run.dead")
_MESSAGE_DEAD: Final = message_type("message.dead")
_INTEGERS: Final = range(-(2**63), 2**64)


class DeadLetterKind(StrEnum):
    """The origin of a dead letter: only a dead run can be replayed."""

    RUN = "run"
    MESSAGE = "message"


@dataclass(frozen=True, slots=True, kw_only=True)
class IncomingDeadLetter:
    """A message from `harebell.dead`, or from a queue of what the queues of users dead-letter.

    The body of a message decides nothing unless a service has published it (`is_trusted`).
    The queue of one owner names it (`owner`), whatever the message says.
    """

    body: bytes
    type: str | None
    routing_key: str
    message_id: str | None
    user_id: str | None = None
    headers: Mapping[str, Any]
    is_trusted: bool = True
    owner: str | None = None  # the tenant from whose queues the message comes


@dataclass(frozen=True, slots=True)
class XDeath:
    """The last entry of the header `x-death`, which the broker writes on a dead-lettered message.

    The entry informs people and decides nothing.
    """

    queue: str
    reason: str
    at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetter:
    """One row of `dead_letters`. The derived id lets a repeated message store one row only.

    A version without the tenant in ids may have stored the same dead letter as `older_id`.
    """

    id: UUID
    older_id: UUID
    tenant: str
    kind: DeadLetterKind
    reason: str
    error_code: str | None = None
    error: str | None
    dead_at: datetime
    payload: Mapping[str, Any]
    body: bytes | None = None
    run: RunKey | None = None
    replay_number: int | None = None
    key: str | None = None
    attempts: int = 0
    root_id: UUID | None = None  # the dead letter of replay number 0, if this run died again
    older_root_id: UUID | None = None
    is_imported: bool = False

    @property
    def fingerprint(self) -> Fingerprint:
        return fingerprint(
            self.tenant,
            self.payload,
            error_code=self.error_code or self.reason,
            error=self.error,
        )


def dead_letters_of(incoming: IncomingDeadLetter, now: datetime) -> list[DeadLetter]:
    """Return the dead letters of each item of the message, in order.

    An item of another type than the message declares becomes a raw dead letter.
    A time of death after `now` becomes `now`.
    """
    if not incoming.is_trusted:
        dead = _raw_message(incoming, now)
        tenant = incoming.owner or tenant_of_request(dead)
        return [_of_part(dead, OwnedPart(tenant, incoming.body))]
    if incoming.type not in (_RUN_DEAD, _MESSAGE_DEAD):
        return _of_dead_message(_raw_message(incoming, now), incoming.body)
    try:
        items = decode(incoming.body)
    except InvalidInput as error:
        return [raw_dead_letter(incoming, now, error=error)]
    if not isinstance(items, list) or not 0 < len(items) <= MAX_MESSAGE_ITEMS:
        return [raw_dead_letter(incoming, now)]
    return [
        replace(each, dead_at=min(each.dead_at, now))
        for item in items
        for each in _dead_letters_of_item(incoming, item, now)
    ]


def _dead_letters_of_item(
    incoming: IncomingDeadLetter, item: object, now: datetime
) -> list[DeadLetter]:
    payload = redact_payload(sanitize_json(item))
    try:
        if incoming.type == _RUN_DEAD:
            return [_of_dead_run(parse(DeadRun, payload), payload)]
        message = parse(DeadMessage, payload)
        return _of_dead_message(message, base64.b64decode(message.body, validate=True))
    except InvalidInput as error:
        return [raw_dead_letter(incoming, now, error=error, body=orjson.dumps(payload))]
    except ValueError:  # also for a letter that is not ASCII
        return [raw_dead_letter(incoming, now, body=orjson.dumps(payload))]


def raw_dead_letter(
    incoming: IncomingDeadLetter,
    now: datetime,
    *,
    error: InvalidInput | None = None,
    body: bytes | None = None,
) -> DeadLetter:
    """Return the dead letter of an unreadable message.

    It belongs to the owner of its queue, or else to the operators.
    `body` replaces the body of the message.
    """
    tenant = incoming.owner or OPERATIONS_TENANT
    part = OwnedPart(tenant, incoming.body if body is None else body)
    return _of_part(_raw_message(incoming, now, error=error), part)


def _raw_message(
    incoming: IncomingDeadLetter, now: datetime, *, error: InvalidInput | None = None
) -> DeadMessage:
    # A returned message was parked by its queue, which is not where it died.
    death = parse_x_death(incoming.headers, except_in=DEAD_LETTERS.name)
    return DeadMessage(
        queue=death.queue if death else DEAD_LETTERS.name,
        message_id=incoming.message_id,
        user_id=incoming.user_id,
        type=incoming.type,
        routing_key=incoming.routing_key,
        reason=death.reason if death else UNREADABLE,
        error=error.reason if error else None,
        dead_at=min((death and death.at) or now, now),
        headers=dict(incoming.headers),
        body="",
    )


def parse_x_death(headers: Mapping[str, Any], *, except_in: str | None = None) -> XDeath | None:
    """Return the last death of the message in another queue than `except_in`.

    Return None if the headers contain no valid death.
    """
    deaths = headers.get("x-death")
    if not isinstance(deaths, list) or not all(isinstance(each, Mapping) for each in deaths):
        return None
    # the broker writes the latest death first
    empty: Mapping[str, Any] = {}
    last = next((each for each in deaths if each.get("queue") != except_in), empty)
    queue, reason, at = last.get("queue"), last.get("reason"), last.get("time")
    if not isinstance(queue, str) or not isinstance(reason, str):
        return None
    return XDeath(queue, reason, at if _is_valid_time(at) else None)


def _is_valid_time(value: object) -> TypeGuard[datetime]:
    # any publisher can write these headers
    return isinstance(value, datetime) and value.tzinfo is not None and EARLIEST <= value < LATEST


def import_dead_letter(exported: ExportedDeadLetter, now: datetime) -> DeadLetter:
    """Return the dead letter of an export, with the id that a report of a service would have.

    Raise `InvalidInput` for an invalid payload, body or time of death.
    """
    imported = replace(_parse_export(exported), is_imported=True)
    if imported.dead_at > now + MAX_CLOCK_SKEW:
        reason = f"The time of death must not be after {instant_text(now)}, the present time."
        raise InvalidInput(reason, field="dead_at", code="future_dead_at")
    return imported


def _parse_export(exported: ExportedDeadLetter) -> DeadLetter:
    payload = redact_payload(sanitize_json(exported.payload))
    if DeadLetterKind(exported.kind) is DeadLetterKind.RUN:
        return _of_dead_run(parse(DeadRun, payload), payload)
    body = exported.body or ""
    try:
        decoded = base64.b64decode(body, validate=True)
    except ValueError:  # also for a letter that is not ASCII
        raise InvalidInput("The body must be valid base64.", field="body") from None
    # The broker has verified no login of an import, which its tenant may have written by hand.
    dead = parse(DeadMessage, {**payload, "body": body, "user_id": None})
    parts = _of_dead_message(dead, decoded)
    if len(parts) > 1:
        raise InvalidInput("The body must contain the tickets of one tenant.", field="body")
    return parts[0]


def with_separate_id(imported: DeadLetter) -> DeadLetter:
    """Return the import with an id that no report of a service has."""
    separate = imported_dead_letter_id(imported.id)
    return replace(imported, id=separate, older_id=separate)


def _of_dead_run(dead: DeadRun, payload: Mapping[str, Any]) -> DeadLetter:
    key = RunKey(dead.scheduled_for, dead.schedule_id)
    if str(key) != dead.run_id:
        reason = f"The run id must be {key}, not {dead.run_id}."
        raise InvalidInput(reason, field="run_id")
    if not 0 <= dead.replay_number <= MAX_REPLAY_NUMBER:
        reason = f"The replay number must be 0 to {MAX_REPLAY_NUMBER}, not {dead.replay_number}."
        raise InvalidInput(reason, field="replay_number")
    tenant = dead.tenant[:MAX_NAME_LENGTH]
    is_replay = dead.replay_number > 0
    return DeadLetter(
        id=dead_run_id(tenant, dead.run_id, dead.replay_number),
        older_id=older_dead_run_id(dead.run_id, dead.replay_number),
        tenant=tenant,
        kind=DeadLetterKind.RUN,
        reason=dead.reason[:MAX_NAME_LENGTH],
        error_code=dead.error_code[:MAX_NAME_LENGTH],
        error=dead.error and dead.error[:MAX_ERROR_LENGTH],
        dead_at=dead.dead_at,
        payload=payload,
        run=key,
        replay_number=dead.replay_number,
        key=dead.key and dead.key[:MAX_NAME_LENGTH],
        attempts=len(dead.attempts),
        root_id=dead_run_id(tenant, dead.run_id, 0) if is_replay else None,
        older_root_id=older_dead_run_id(dead.run_id, 0) if is_replay else None,
    )


def _of_dead_message(dead: DeadMessage, body: bytes) -> list[DeadLetter]:
    return [_of_part(dead, part) for part in owned_parts(dead, body)]


def _of_part(dead: DeadMessage, part: OwnedPart) -> DeadLetter:
    tenant = part.tenant
    body = redact_bytes(part.body)  # the broker has dead-lettered some bodies unchanged
    properties = sanitize_json(dead.model_dump(exclude={"body"}))
    return DeadLetter(
        id=dead_message_id(tenant, dead.queue, message_id=dead.message_id, body=body),
        older_id=older_dead_message_id(dead.queue, dead.message_id, part.body),
        tenant=tenant,
        kind=DeadLetterKind.MESSAGE,
        reason=sanitize_text(dead.reason, MAX_NAME_LENGTH),
        error=dead.error and sanitize_text(dead.error, MAX_ERROR_LENGTH),
        dead_at=dead.dead_at,
        payload={**properties, "size": len(body)},
        body=body[:MAX_STORED_BODY],
    )


def redact_payload(payload: Any) -> Any:  # noqa: ANN401  # JSON
    """Return the payload of a dead letter with `***` for each literal secret of its target."""
    return redact_definition(payload) if isinstance(payload, Mapping) else payload


def sanitize_text(value: str, limit: int | None = None) -> str:
    """Return the first `limit` characters, without NUL and lone surrogates.

    PostgreSQL accepts neither NUL nor lone surrogates in a text column.
    """
    return value[:limit].replace("\0", "\ufffd").encode(errors="replace").decode()


def sanitize_json(value: object, depth: int = 0) -> Any:  # noqa: ANN401  # the type is JSON
    """Return the value as storable JSON, with every value of another type as text for people."""
    if depth > MAX_JSON_DEPTH:
        return TOO_DEEP
    match value:
        case Mapping():
            return {
                sanitize_text(str(name)): sanitize_json(item, depth + 1)
                for name, item in value.items()
            }
        case list() | tuple():
            return [sanitize_json(item, depth + 1) for item in value]
        case None | bool():
            return value
        case int() | float() if _is_json_number(value):
            return value
        case _:
            return sanitize_text(_text_of(value))


def _is_json_number(value: float) -> bool:
    return value in _INTEGERS if isinstance(value, int) else math.isfinite(value)


def _text_of(value: object) -> str:
    match value:
        case bytes() | bytearray():
            return value.decode(errors="backslashreplace")
        case datetime() if value.tzinfo is not None:
            return instant_text(value)
        case _:
            return str(value)
