"""Properties and bodies that a publisher may send by mistake or on purpose."""

import random
import struct
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

from tests.rig.amqp_wire import long_text, short_text

NAMES: Final = (
    b"",
    b"a" * 255,
    b"\xff\xfe",
    "ключ".encode(),
    b"traceparent",
    b"x-delay",
    b"x-death",
    b"harebell-tenant",
    b"harebell-credit-queue",
    b"harebell-credit-number",
    b"harebell-probe",
)
TIMES: Final = (0, 1, 2**31, 2**32, 1_795_738_538_000, 1_795_738_538_000_000, 2**63, 2**64 - 1)
# The bits of the flags. RabbitMQ checks `expiration` (8) and `user_id` (4).
HEADERS, EXPIRATION, TIMESTAMP, TYPE = 13, 8, 6, 5
OCTETS: Final = (12, 11)  # delivery_mode, priority
REPLY_TO, MESSAGE_ID = 9, 7
SHORT_TEXTS: Final = (15, 14, 10, REPLY_TO, MESSAGE_ID, TYPE, 3, 2)
NESTED_KINDS: Final = frozenset({b"A", b"F"})
UNKNOWN_KIND: Final = b"Q"  # to RabbitMQ, which refuses the message
# Of nested tables. Deeper ones delay the other messages of their queue by a second, which RabbitMQ
# needs for each delivery: see `test_costly_headers`.
DEPTHS: Final = (1, 3, 15, 16, 17, 1_000, 4_000)


def properties(dice: random.Random, type_: str | None) -> bytes:
    """Return the flags and the list of properties that the broker does not check.

    Most of them have the given type.
    """
    found: dict[int, bytes] = {}
    if type_ is not None:
        found[TYPE] = short_text(type_.encode())
    if dice.random() < 0.8:
        found[HEADERS] = long_text(_table(dice))
    if dice.random() < 0.5:
        found[TIMESTAMP] = struct.pack(">Q", dice.choice((*TIMES, dice.getrandbits(64))))
    for flag in SHORT_TEXTS:
        if dice.random() < 0.1:
            found[flag] = short_text(_bytes(dice, dice.choice((0, 1, 20, 255))))
    for flag in OCTETS:
        if dice.random() < 0.2:
            found[flag] = bytes([dice.randrange(256)])
    flags = sum(1 << flag for flag in found)
    content = b"".join(found[flag] for flag in sorted(found, reverse=True))
    return struct.pack(">H", flags) + content


def is_acceptable(list_: bytes) -> bool:
    """Return whether Harebell must accept a valid command with these properties.

    It refuses a reply queue without the form of one, and a message that a queue has dead-lettered.
    A command with the id of an earlier message is its repeat.
    """
    (flags,) = struct.unpack(">H", list_[:2])
    return not flags & (1 << REPLY_TO | 1 << MESSAGE_ID) and b"x-death" not in list_


def _table(dice: random.Random) -> bytes:
    if dice.random() < 0.1:
        kind, name = dice.choice(((b"F", short_text(b"n")), (b"A", b"")))
        return _nested(kind, name, dice.choice(DEPTHS))
    return b"".join(
        short_text(dice.choice((*NAMES, _bytes(dice, 5)))) + _value(dice, 3)
        for _ in range(dice.randrange(6))
    )


def nested_headers(depth: int, *, ttl_ms: int | None = None) -> bytes:
    """Return the flags and the list of properties with tables in each other as headers.

    The message expires after `ttl_ms` in its queue.
    """
    flags = 1 << HEADERS
    content = long_text(_nested(b"F", short_text(b"n"), depth))
    if ttl_ms is not None:
        flags |= 1 << EXPIRATION
        content += short_text(b"%d" % ttl_ms)
    return struct.pack(">H", flags) + content


def _nested(kind: bytes, name: bytes, depth: int) -> bytes:
    """Return a table with tables or arrays in each other. Each level needs 5 to 7 bytes."""
    value = kind + long_text(b"")
    for _ in range(depth):
        value = kind + long_text(name + value)
    return short_text(b"deep") + value


def _value(dice: random.Random, depth: int) -> bytes:
    kinds = sorted(_CONTENTS if depth else _CONTENTS.keys() - NESTED_KINDS)
    kind = dice.choice(kinds)
    if dice.random() < 0.01:
        return UNKNOWN_KIND + dice.randbytes(8)
    return kind + _CONTENTS[kind](dice, depth)


def _number(form: str, low: int, high: int, dice: random.Random, _depth: int) -> bytes:
    return struct.pack(f">{form}", dice.choice((low, high, 0, 1, dice.randint(low, high))))


def _float(form: str, largest: float, dice: random.Random, _depth: int) -> bytes:
    return struct.pack(f">{form}", dice.choice((0.0, -0.0, 1.5, largest, -largest, 5e-324)))


def _text(dice: random.Random, _depth: int) -> bytes:
    return long_text(_bytes(dice, dice.choice((0, 1, 30, 60_000))))


def _time(dice: random.Random, _depth: int) -> bytes:
    return struct.pack(">Q", dice.choice((*TIMES, dice.getrandbits(64))))


def _decimal(dice: random.Random, _depth: int) -> bytes:
    return struct.pack(">BI", dice.randrange(256), dice.getrandbits(32))


def _array(dice: random.Random, depth: int) -> bytes:
    return long_text(b"".join(_value(dice, depth - 1) for _ in range(dice.randrange(4))))


def _inner_table(dice: random.Random, depth: int) -> bytes:
    names = [dice.choice((*NAMES, b"n")) for _ in range(dice.randrange(4))]
    return long_text(b"".join(short_text(name) + _value(dice, depth - 1) for name in names))


# The kinds of values that RabbitMQ reads.
_CONTENTS: Final[Mapping[bytes, Callable[[random.Random, int], bytes]]] = {
    b"b": partial(_number, "b", -(2**7), 2**7 - 1),
    b"B": partial(_number, "B", 0, 2**8 - 1),
    b"s": partial(_number, "h", -(2**15), 2**15 - 1),
    b"u": partial(_number, "H", 0, 2**16 - 1),
    b"I": partial(_number, "i", -(2**31), 2**31 - 1),
    b"i": partial(_number, "I", 0, 2**32 - 1),
    b"l": partial(_number, "q", -(2**63), 2**63 - 1),
    b"f": partial(_float, "f", 3e38),
    b"d": partial(_float, "d", 1e308),
    b"t": lambda dice, _: bytes([dice.choice((0, 1, 255))]),
    b"S": _text,
    b"x": _text,
    b"T": _time,
    b"D": _decimal,
    b"V": lambda _dice, _depth: b"",
    b"A": _array,
    b"F": _inner_table,
}


def _bytes(dice: random.Random, length: int) -> bytes:
    return dice.choice((dice.randbytes(length), b"\0" * length, b"a" * length))


def damaged(dice: random.Random, body: bytes) -> bytes:
    """Return another body in place of the given one."""
    at = dice.randrange(len(body) + 1)
    return dice.choice(
        (
            b"",
            body[:at],
            body[:at] + dice.randbytes(1) + body[at + 1 :],
            dice.randbytes(200),
            b"[" * dice.choice((10, 1_000, 100_000)),
            b'{"a":' * 1_000 + b"1" + b"}" * 1_000,
            b"9" * 5_000,
        )
    )
