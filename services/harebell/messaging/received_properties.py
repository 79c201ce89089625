"""The properties and headers of a received message, which are decoded when a service reads them.

Any publisher chooses them, and the broker passes them on as bytes. If a library decodes them
strictly, it closes the connection at the first value that it cannot represent, such as a timestamp
in microseconds. Then the broker delivers the message again, and its queue stands still.
"""

import struct
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from decimal import Decimal
from hashlib import sha256
from typing import Any, Final, TypeAlias

from harebell.contract.errors import HarebellError

MAX_SHORT_TEXT: Final = 255  # bytes
MAX_DEPTH: Final = 16  # levels of tables and arrays; a deeper one stays a byte string

Value: TypeAlias = Any  # of a header

_SHORT_TEXT, _TABLE, _OCTET, _TIMESTAMP = "short text", "table", "octet", "timestamp"
_FIRST_FLAG: Final = 1 << 15
_UNUSED_FLAGS: Final = 0b11  # of AMQP 0-9-1, which has 14 properties and one word of flags
# The properties of the class Basic in the order of their flags, from the highest bit.
_KINDS: Final[Mapping[str, str]] = {
    "content_type": _SHORT_TEXT,
    "content_encoding": _SHORT_TEXT,
    "headers": _TABLE,
    "delivery_mode": _OCTET,
    "priority": _OCTET,
    "correlation_id": _SHORT_TEXT,
    "reply_to": _SHORT_TEXT,
    "expiration": _SHORT_TEXT,
    "message_id": _SHORT_TEXT,
    "timestamp": _TIMESTAMP,
    "message_type": _SHORT_TEXT,
    "user_id": _SHORT_TEXT,
    "app_id": _SHORT_TEXT,
    "cluster_id": _SHORT_TEXT,
}
_PROPERTIES: Final = tuple(
    (_FIRST_FLAG >> index, name, kind) for index, (name, kind) in enumerate(_KINDS.items())
)
_FLAGS: Final = struct.Struct(">H")
_LENGTH: Final = struct.Struct(">I")  # before a table, an array and a long text
_SECONDS: Final = struct.Struct(">Q")
_DECIMAL: Final = struct.Struct(">BI")  # the number of decimal places, and the digits
_MAX_SECONDS: Final = 0xFFFFFFFF  # in 2106; a larger timestamp has milliseconds
# The numbers of RabbitMQ's dialect by the code of their type. `L` and `U` are of other clients.
_NUMBERS: Final[Mapping[int, struct.Struct]] = {
    ord(code): struct.Struct(f">{form}")
    for code, form in {
        "b": "b",
        "B": "B",
        "s": "h",
        "U": "h",
        "u": "H",
        "I": "i",
        "i": "I",
        "l": "q",
        "L": "q",
        "f": "f",
        "d": "d",
    }.items()
}


class Undecodable(HarebellError):
    """Properties or headers that do not have the form of AMQP.

    No handler catches this error, so the message is dead-lettered, alone.
    """

    code = "undecodable"


class ReceivedProperties:
    """The properties of a message as bytes: its flags and the list of its properties.

    Each attribute with the name of a property decodes that property, and is None without it.
    If the bytes are no list of properties, `error` tells why, and those before it are known.
    """

    __slots__ = ("_found", "error", "raw")

    def __init__(self, raw: bytes) -> None:
        self.raw = raw
        self._found: dict[str, bytes] = {}
        self.error: str | None = None
        try:
            self._split()
        except (IndexError, struct.error):
            self.error = "The list of properties ends too early."

    def _split(self) -> None:
        """Find each property without decoding it."""
        raw = self.raw
        (flags,) = _FLAGS.unpack_from(raw)
        if flags & _UNUSED_FLAGS:
            self.error = f"The flags of the properties must be those of AMQP 0-9-1, not {flags:#x}."
            return
        at = _FLAGS.size
        for flag, name, kind in _PROPERTIES:
            if not flags & flag:
                continue
            if kind is _SHORT_TEXT:
                at, end = at + 1, at + 1 + raw[at]
            elif kind is _TABLE:
                at, end = at + 4, at + 4 + _LENGTH.unpack_from(raw, at)[0]
            else:
                end = at + (1 if kind is _OCTET else _SECONDS.size)
            if end > len(raw):
                raise IndexError(end)
            self._found[name] = raw[at:end]
            at = end

    def __getattr__(self, name: str) -> Value:
        """Return a property. Raise `Undecodable` for headers that are no table."""
        kind = _KINDS.get(name)
        if kind is None:
            raise AttributeError(name)
        content = self._found.get(name)
        if content is None:
            return None
        if kind is _SHORT_TEXT:
            return short_text(content)
        if kind is _TABLE:
            return decode_table(content)
        return content[0] if kind is _OCTET else _time(content, 0)


class LazyHeaders(Mapping[str, Value]):
    """The headers of a message, which are decoded at the first access.

    Each access raises `Undecodable` if the headers or the properties before them are not decodable.
    """

    __slots__ = ("_decoded", "_properties")

    def __init__(self, properties: ReceivedProperties) -> None:
        self._properties = properties
        self._decoded: dict[str, Value] | None = None

    def _headers(self) -> dict[str, Value]:
        if self._decoded is None:
            if self._properties.error is not None:
                raise Undecodable(self._properties.error)
            self._decoded = self._properties.headers or {}
        return self._decoded

    def __getitem__(self, name: str) -> Value:
        return self._headers()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._headers())

    def __len__(self) -> int:
        return len(self._headers())


def short_text(content: bytes) -> str:
    r"""Return a text of at most 255 bytes, so that a property or a name can contain it again.

    Bytes that are not UTF-8 become escapes such as `\xff`, and a text that is then too long becomes
    a digest. Replacement characters would make one message id of two.
    """
    try:
        return content.decode()
    except UnicodeDecodeError:
        text = content.decode(errors="backslashreplace")
    if len(text.encode()) <= MAX_SHORT_TEXT:
        return text
    return f"sha256:{sha256(content).hexdigest()}"


def decode_table(content: bytes) -> dict[str, Value]:
    """Return the headers of a table without its length. Raise `Undecodable`.

    Text that is not UTF-8 stays bytes, and a time without a date in Python stays a number. Below
    `MAX_DEPTH` levels, tables and arrays stay bytes.
    """
    try:
        return _table(content, depth=1)
    except (IndexError, struct.error):
        raise Undecodable("The headers end too early.") from None


def _table(raw: bytes, *, depth: int) -> dict[str, Value]:
    table, at = {}, 0
    while at < len(raw):
        start = at + 1
        at = start + raw[at]
        name = short_text(raw[start:at])
        table[name], at = _value(raw, at, depth=depth)
    return table


def _array(raw: bytes, *, depth: int) -> list[Value]:
    values, at = [], 0
    while at < len(raw):
        value, at = _value(raw, at, depth=depth)
        values.append(value)
    return values


def _value(raw: bytes, at: int, *, depth: int) -> tuple[Value, int]:
    """Return the value at an index and the index after it."""
    code = raw[at]
    at += 1
    number = _NUMBERS.get(code)
    if number is not None:
        return number.unpack_from(raw, at)[0], at + number.size
    match code:
        case 0x53 | 0x78 | 0x46 | 0x41:  # S, x, F and A begin with a length
            start = at + _LENGTH.size
            at = start + _LENGTH.unpack_from(raw, at)[0]
            if at > len(raw):
                raise IndexError(at)
            return _long_value(code, raw[start:at], depth=depth), at
        case 0x74:  # t
            return raw[at] != 0, at + 1
        case 0x54:  # T
            return _time(raw, at), at + _SECONDS.size
        case 0x44:  # D
            places, digits = _DECIMAL.unpack_from(raw, at)
            return Decimal(digits).scaleb(-places), at + _DECIMAL.size
        case 0x56 | 0x00:  # V, and a null of some clients
            return None, at
        case _:
            raise Undecodable(f"The headers contain a value of the unknown type {code:#04x}.")


def _long_value(code: int, content: bytes, *, depth: int) -> Value:
    """Return a text, a byte string, a table or an array."""
    if code == ord("S"):
        try:
            return content.decode()
        except UnicodeDecodeError:
            return content
    if code == ord("x") or depth >= MAX_DEPTH:
        return content
    decode = _table if code == ord("F") else _array
    return decode(content, depth=depth + 1)


def _time(raw: bytes, at: int) -> datetime | int:
    """Return the time, or its number if no year of Python contains it."""
    (number,) = _SECONDS.unpack_from(raw, at)
    try:
        return datetime.fromtimestamp(number if number <= _MAX_SECONDS else number / 1000, tz=UTC)
    except (OverflowError, OSError, ValueError):
        return int(number)
