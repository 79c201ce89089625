"""The rule that makes a `schedule.put` from a delayed message (pure)."""

import base64
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final, TypeAlias

import orjson

from harebell.contract.amqp_names import TIMESTAMP_IN_MS, X_DELAY, due_exchange
from harebell.contract.errors import InvalidInput
from harebell.contract.message import quoted
from harebell.contract.target import MAX_PAYLOAD
from harebell.contract.target_headers import (
    is_read_by_broker,
    is_routing_header,
    is_set_by_harebell,
)
from harebell.contract.types import MILLISECOND, duration_text, instant_text
from harebell.messaging.received_message import ReceivedMessage
from harebell.messaging.sender_check import digest

MAX_DELAY: Final = timedelta(days=3653)  # ten years
MAX_KEY: Final = 256  # characters of the key of a schedule
TAG: Final = "delayed"  # of each schedule that waits for a delayed message
INVALID_DELAY: Final = "invalid_delay"

_MAX_DELAY_MS: Final = MAX_DELAY // MILLISECOND
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_INTEGER: Final = re.compile(r"-?[0-9]{1,18}", re.ASCII)
_TEXTS: Final = ("content_type", "content_encoding", "correlation_id", "reply_to", "message_id")

JsonObject: TypeAlias = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class DelayedMessage:
    """A message with its delay in milliseconds, and the call that publishes it again.

    `key` identifies the message among the waiting messages of its tenant. It is None for a message
    without `message_id`, and for a message without a delay, which replaces no other message.
    """

    exchange: str
    delay_ms: int  # 0: at once
    call: JsonObject
    key: str | None

    @classmethod
    def of(cls, message: ReceivedMessage) -> "DelayedMessage":
        """Return the delayed message. Raise `InvalidInput` for one that no target can publish."""
        delay_ms = max(0, parse_delay(message.headers))
        if (size := len(message.body)) > MAX_PAYLOAD:
            reason = f"A delayed message must have at most {MAX_PAYLOAD} bytes, not {size}."
            raise InvalidInput(reason, code="too_large")
        id_ = message.message_id
        key = key_of(message.exchange, id_) if id_ and delay_ms else None
        call = _call(message, delay_ms)
        return cls(exchange=message.exchange, delay_ms=delay_ms, call=call, key=key)

    @property
    def digest(self) -> str:
        """The digest of every property, every header and the body."""
        return digest(orjson.dumps(self.call, option=orjson.OPT_SORT_KEYS))

    def put(self, key: str, *, waited_ms: int = 0) -> JsonObject:
        """Return the body of a `schedule.put` that replaces the waiting message with the key.

        `waited_ms` is the part of the delay that has passed before the put.
        """
        rest_ms = self.delay_ms - waited_ms
        is_due = rest_ms <= 0
        return {
            "key": key,
            "when": {"now": True} if is_due else {"after": duration_text(rest_ms * MILLISECOND)},
            "target": {"amqp": self.call},
            "tags": [TAG],
            "expected_version": "any",
            "revive": True,
        }


def parse_delay(headers: Mapping[str, Any]) -> int:
    """Return the delay in milliseconds, which is 0 without the header. Raise `InvalidInput`."""
    value = headers.get(X_DELAY, 0)
    if isinstance(value, str) and _INTEGER.fullmatch(value):
        value = int(value)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool):
        reason = f"The header x-delay must be a whole number of milliseconds, not {quoted(value)}."
        raise InvalidInput(reason, field=X_DELAY, code=INVALID_DELAY)
    if value > _MAX_DELAY_MS:
        reason = (
            f"The header x-delay must be at most {_MAX_DELAY_MS} ms ({MAX_DELAY.days} days), "
            f"not {value} ms."
        )
        raise InvalidInput(reason, field=X_DELAY, code=INVALID_DELAY)
    return value


def waited_ms(headers: Mapping[str, Any], accepted_at: datetime) -> int:
    """Return the whole milliseconds since RabbitMQ received the message, if it writes that time.

    The clock of RabbitMQ may be ahead, so the result is at least 0.
    """
    received_ms = headers.get(TIMESTAMP_IN_MS)
    if not isinstance(received_ms, int):
        return 0
    return max(0, (accepted_at - _EPOCH) // MILLISECOND - received_ms)


def key_of(exchange: str, message_id: str) -> str:
    """Return the key of the schedule: `delayed/<exchange>/<message_id>`.

    A key that would be too long contains a digest instead.
    """
    name = _escaped(exchange)
    key = f"delayed/{name}/{message_id}"
    if len(key) > MAX_KEY:
        key = f"delayed/{name}/{_digest_text(message_id)}"
    return key if len(key) <= MAX_KEY else f"delayed/{_digest_text(f'{exchange}/{message_id}')}"


def key_of_digest(exchange: str, content: str, suffix: str = "") -> str:
    """Return the key of a message that no `message_id` identifies."""
    key = f"delayed/{_escaped(exchange)}/sha256:{content}{suffix}"
    return key if len(key) <= MAX_KEY else f"delayed/sha256:{content}{suffix}"


def _escaped(exchange: str) -> str:
    """Return the name without a slash, so that no two messages have the same key."""
    return exchange.replace("%", "%25").replace("/", "%2F")


def _digest_text(text: str) -> str:
    return f"sha256:{digest(text.encode())}"


def _call(message: ReceivedMessage, delay_ms: int) -> JsonObject:
    """Return the message of the target, which has every property of the received message."""
    call: JsonObject = {
        "exchange": due_exchange(message.exchange),
        "absent_properties": "omit",
        **_body(message.body),
    }
    if message.routing_key:
        call["routing_key"] = message.routing_key
    headers = _headers(message.headers, delay_ms)
    if headers:
        call["headers"] = headers
    properties = message.properties
    if properties is None:
        return call
    call |= {name: text for name in _TEXTS if (text := getattr(properties, name))}
    if properties.message_type:
        call["type"] = properties.message_type
    if properties.app_id:
        call["app_id"] = properties.app_id
    if properties.priority is not None:
        call["priority"] = properties.priority
    if properties.timestamp is not None:
        call["timestamp"] = _timestamp(properties.timestamp)
    if properties.expiration:
        call["expiration"] = _expiration(properties.expiration)
    return call


def _body(body: bytes) -> JsonObject:
    """Return the body as text if PostgreSQL can store the text, and otherwise in base64."""
    if not body:
        return {}
    try:
        text = body.decode()
    except UnicodeDecodeError:
        text = "\0"
    return {"base64": base64.b64encode(body).decode()} if "\0" in text else {"text": text}


def _timestamp(time: datetime | int) -> str:
    if isinstance(time, int):
        reason = f"The timestamp must be a number of seconds before the year 10000, not {time}."
        raise InvalidInput(reason, field="timestamp", code="invalid_instant")
    return instant_text(time)


def _expiration(text: str) -> str:
    if not _INTEGER.fullmatch(text) or text.startswith("-"):
        reason = f"The expiration must be a number of milliseconds, not {quoted(text)}."
        raise InvalidInput(reason, field="expiration", code="invalid_duration")
    return f"{int(text)}ms"


def _headers(headers: Mapping[str, Any], delay_ms: int) -> JsonObject:
    """Return the headers of the sender, and `x-delay` negated as the plugin returns it.

    The broker and Harebell write the omitted headers again.
    """
    found: JsonObject = {}
    for name, value in headers.items():
        if is_routing_header(name):
            reason = f"A delayed message must not have the header {name}, which routes copies."
            raise InvalidInput(reason, field=f"headers.{name}", code="reserved_header")
        if not is_set_by_harebell(name) and not is_read_by_broker(name):
            found[name] = _header(name, value)
    if delay_ms:
        found[X_DELAY] = -delay_ms
    return found


def _header(name: str, value: Any) -> Any:  # noqa: ANN401  # the types of AMQP tables
    """Return the header as JSON. Raise `InvalidInput` for a value that JSON cannot represent."""
    match value:
        case bool() | int() | str() | None:
            return value
        case float() if math.isfinite(value):
            return value
        case bytes() | bytearray():
            return {"base64": base64.b64encode(value).decode()}
        case datetime():
            return {"timestamp": instant_text(value)}
        case list() | dict():
            return {"json": _json(name, value)}
        case _:
            raise _not_representable(name, value)


def _json(name: str, value: Any) -> Any:  # noqa: ANN401  # JSON
    try:
        orjson.dumps(value, option=orjson.OPT_PASSTHROUGH_DATETIME)
    except TypeError:
        raise _not_representable(name, value) from None
    return value


def _not_representable(name: str, value: object) -> InvalidInput:
    reason = (
        f"The header {quoted(name)} must have a value that JSON can represent, not a "
        f"{type(value).__name__} with other types."
    )
    return InvalidInput(reason, field=f"headers.{name}", code="invalid_header")
