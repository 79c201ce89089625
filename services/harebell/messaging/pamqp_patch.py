"""Patches of pamqp: properties that are not UTF-8, and the types of numbers in headers.

A short string of AMQP is a byte string for the broker.
pamqp decodes short strings strictly, and the error closes the connection.
The broker then delivers the message again, so one such message stops its queue.
Each delivery also brings the other prefetched messages closer to their delivery limit.
Decision 8 gives the condition for the removal of this patch.

pamqp writes a float of 64 bits as one of 32 bits, which changes its value.
It writes an integer in the shortest of six types, and some clients know only four (decision 90).
"""

import struct

from pamqp import common, decode, encode

_MIN_INT32, _MAX_INT32 = -(2**31), 2**31 - 1
_LENGTH_BYTES = 4  # of the length at the start of a table

_encode_value = encode.encode_table_value
_decode_table_strictly = decode.METHODS["table"]


def install() -> None:
    """Replace functions of pamqp in this process. A second call changes nothing."""
    encode.encode_table_value = _encode_number_or_value
    decode.METHODS["shortstr"] = _decode_short_string
    decode.METHODS["table"] = _decode_table


def _encode_number_or_value(
    value: "common.FieldArray | common.FieldTable | common.FieldValue",
) -> bytes:
    """Encode an integer with 32 or 64 bits and a float with 64 bits, as other clients do."""
    if type(value) is int and _MIN_INT32 <= value <= _MAX_INT32:
        return b"I" + struct.pack(">i", value)
    if type(value) is int:
        return b"l" + struct.pack(">q", value)
    if type(value) is float:
        return b"d" + struct.pack(">d", value)
    return _encode_value(value)


def _decode_short_string(value: bytes) -> tuple[int, str]:
    if not value:
        raise ValueError("A short string must begin with its length, not be empty.")
    length = value[0]
    return length + 1, value[1 : length + 1].decode(errors="replace")


def _decode_table(value: bytes) -> tuple[int, common.FieldValue]:
    """Return no headers if the name of one is not UTF-8, because no service needs a header."""
    try:
        return _decode_table_strictly(value)
    except UnicodeDecodeError:
        return _LENGTH_BYTES + int.from_bytes(value[:_LENGTH_BYTES], "big"), {}
