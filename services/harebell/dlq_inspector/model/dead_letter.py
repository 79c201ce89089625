"""What the broker wrote on a message that it dead-lettered itself. For people; decides nothing."""

import base64
import binascii
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, Final, TypeGuard
from uuid import UUID

import orjson

from harebell.contract.amqp_names import message_type, split_key
from harebell.contract.commands import MAX_BODY
from harebell.contract.dead_letter import DeadMessage, DeadRun, ExportedDeadLetter
from harebell.contract.errors import InvalidInput
from harebell.contract.ids import RunKey, dead_message_id, dead_run_id
from harebell.contract.json_codec import decode
from harebell.contract.message import parse
from harebell.contract.types import EARLIEST, LATEST, instant_text
from harebell.dlq_inspector.model.fingerprint import Fingerprint, fingerprint
from harebell.messaging.topology.bus import DEAD_LETTERS, DLQ, INTAKE, QUERY


@dataclass(frozen=True, slots=True)
class XDeath:
    """The last one, where a message died more than once."""

    queue: str
    reason: str
    at: datetime | None


def parse_x_death(headers: Mapping[str, Any]) -> XDeath | None:
    """None when these are not the headers of a dead-lettered message."""
    deaths = headers.get("x-death")
    if not isinstance(deaths, list) or not deaths or not isinstance(deaths[0], Mapping):
        return None
    last = deaths[0]  # the broker puts the latest first
    queue, reason, at = last.get("queue"), last.get("reason"), last.get("time")
    if not isinstance(queue, str) or not isinstance(reason, str):
        return None
    return XDeath(queue, reason, at if _is_instant(at) else None)


def _is_instant(value: object) -> TypeGuard[datetime]:
    """Anyone can write these headers."""
    return isinstance(value, datetime) and value.tzinfo is not None and EARLIEST <= value < LATEST


# Letters that name no tenant (work, changes, rubbish) may hold anyone's payload: one desk has them.
FALLBACK_TENANT: Final = "default"
UNREADABLE: Final = "unreadable"

MAX_KEPT: Final = MAX_BODY  # bytes of a message's body; what is longer keeps its beginning
MAX_ITEMS: Final = 10_000  # of one message; ours have some hundreds at most
MAX_NAME: Final = 256  # characters of a reason, a code, a key
MAX_ERROR: Final = 1024  # characters of an error's text; the story has it whole
MAX_SERIES: Final = 2**31 - 1

_RUN_DEAD: Final = message_type("run.dead")
_MESSAGE_DEAD: Final = message_type("message.dead")
_TENANTED: Final = frozenset({INTAKE.name, QUERY.name, DLQ.name})  # keys there begin with a tenant
_TENANT: Final = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}", re.ASCII)


class DeadLetterKind(StrEnum):
    """A run can be replayed; a message that nobody could read cannot."""

    RUN = "run"
    MESSAGE = "message"


@dataclass(frozen=True, slots=True)
class IncomingDeadLetter:
    """A message from the dead-letter queue."""

    body: bytes
    type: str | None
    routing_key: str
    message_id: str | None
    headers: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetter:
    """One row of `dead_letters`. The id is derived: what arrives twice is kept once."""

    id: UUID
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
    root_id: UUID | None = None  # where the run died before: the letter of its first series

    @property
    def fingerprint(self) -> Fingerprint:
        return fingerprint(self.tenant, self.payload, self.error_code or self.reason, self.error)


def dead_letters_of(arrival: IncomingDeadLetter, now: datetime) -> list[DeadLetter]:
    """One of each item; an item that is not what the message says it is, is kept as it is."""
    if arrival.type not in (_RUN_DEAD, _MESSAGE_DEAD):
        return [raw_dead_letter(arrival, now)]
    try:
        items = decode(arrival.body)
    except InvalidInput as error:
        return [raw_dead_letter(arrival, now, error=error)]
    if not isinstance(items, list) or not 0 < len(items) <= MAX_ITEMS:
        return [raw_dead_letter(arrival, now)]
    return [_letter(arrival, item, now) for item in items]


def import_dead_letter(told: ExportedDeadLetter) -> DeadLetter:
    """One that was shown, to be kept again. Raises `Malformed`."""
    story = sanitize_json(told.payload)
    if DeadLetterKind(told.kind) is DeadLetterKind.RUN:
        return _of_run(parse(DeadRun, story), story)
    body = told.body or ""
    try:
        decoded = base64.b64decode(body, validate=True)
    except binascii.Error:
        raise InvalidInput("is not base64", field="body") from None
    return _of_message(parse(DeadMessage, {**story, "body": body}), decoded)


def raw_dead_letter(
    arrival: IncomingDeadLetter,
    now: datetime,
    *,
    error: InvalidInput | None = None,
    body: bytes | None = None,
) -> DeadLetter:
    """Of a message that the broker dead-lettered, or of what nobody can read."""
    death = parse_x_death(arrival.headers)
    return _of_message(
        DeadMessage(
            queue=death.queue if death else DEAD_LETTERS.name,
            message_id=arrival.message_id,
            type=arrival.type,
            routing_key=arrival.routing_key,
            reason=death.reason if death else UNREADABLE,
            error=error.reason if error else None,
            dead_at=(death and death.at) or now,
            headers=dict(arrival.headers),
            body="",
        ),
        arrival.body if body is None else body,
    )


def _letter(arrival: IncomingDeadLetter, item: object, now: datetime) -> DeadLetter:
    clean = sanitize_json(item)
    try:
        if arrival.type == _RUN_DEAD:
            return _of_run(parse(DeadRun, clean), clean)
        dead = parse(DeadMessage, clean)
        return _of_message(dead, base64.b64decode(dead.body, validate=True))
    except InvalidInput as error:
        return raw_dead_letter(arrival, now, error=error, body=orjson.dumps(clean))
    except binascii.Error:
        return raw_dead_letter(arrival, now, body=orjson.dumps(clean))


def _of_run(dead: DeadRun, story: Mapping[str, Any]) -> DeadLetter:
    key = RunKey(dead.scheduled_for, dead.schedule_id)
    if str(key) != dead.run_id or not 0 <= dead.replay_number <= MAX_SERIES:
        raise InvalidInput("the run id, or the replay_number, is not that of a run", field="run_id")
    return DeadLetter(
        id=dead_run_id(dead.run_id, dead.replay_number),
        tenant=dead.tenant[:MAX_NAME],
        kind=DeadLetterKind.RUN,
        reason=dead.reason[:MAX_NAME],
        error_code=dead.error_code[:MAX_NAME],
        error=dead.error and dead.error[:MAX_ERROR],
        dead_at=dead.dead_at,
        payload=story,
        run=key,
        replay_number=dead.replay_number,
        key=dead.key and dead.key[:MAX_NAME],
        attempts=len(dead.attempts),
        root_id=dead_run_id(dead.run_id, 0) if dead.replay_number > 0 else None,
    )


def _of_message(dead: DeadMessage, body: bytes) -> DeadLetter:
    about = sanitize_json(dead.model_dump(exclude={"body"}))
    return DeadLetter(
        id=dead_message_id(dead.queue, dead.message_id, body),
        tenant=_tenant(dead.queue, dead.routing_key),
        kind=DeadLetterKind.MESSAGE,
        reason=sanitize_text(dead.reason, MAX_NAME),
        error=dead.error and sanitize_text(dead.error, MAX_ERROR),
        dead_at=dead.dead_at,
        payload={**about, "size": len(body)},
        body=body[:MAX_KEPT],
    )


def _tenant(queue: str, routing_key: str) -> str:
    """Of whoever published it, where the key it was published with says so."""
    tenant, verb = split_key(routing_key)
    named = queue in _TENANTED and verb and _TENANT.fullmatch(tenant)
    return tenant if named else FALLBACK_TENANT


MAX_DEPTH: Final = 64  # levels; a payload has at most 32, and a story adds a few
TOO_DEEP: Final = "(nested too deep to keep)"
_INTEGERS: Final = range(-(2**63), 2**64)


def sanitize_text(value: str, limit: int | None = None) -> str:
    """Its beginning, without NUL and lone surrogates: a text column has no room for them."""
    return value[:limit].replace("\0", "\ufffd").encode(errors="replace").decode()


def sanitize_json(value: object, depth: int = 0) -> Any:  # noqa: ANN401  # JSON
    """What JSON has no word for becomes text: it is kept to be read by people."""
    if depth > MAX_DEPTH:
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
        case int() | float() if _is_number(value):
            return value
        case _:
            return sanitize_text(_told(value))


def _is_number(value: float) -> bool:
    return value in _INTEGERS if isinstance(value, int) else math.isfinite(value)


def _told(value: object) -> str:
    match value:
        case bytes() | bytearray():
            return value.decode(errors="backslashreplace")
        case datetime() if value.tzinfo is not None:
            return instant_text(value)
        case _:
            return str(value)
