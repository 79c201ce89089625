"""Patches of pamqp: lazy properties, texts that are not UTF-8, and what it refuses or cuts.

pamqp decodes each property of a received message, whether or not a service reads it, and an error
closes the connection. The broker then delivers the message again, so one such message stops its
queue. Each delivery also brings the other prefetched messages closer to their delivery limit.
The patch keeps the properties as bytes: see `received_properties`. Decision 96 gives the condition
for its removal.

pamqp writes a float of 64 bits as one of 32 bits, which changes its value.
It writes an integer in the shortest of six types, and some clients know only four (decision 90).
It cuts the names of headers to 128 bytes, and refuses names of exchanges which RabbitMQ allows.
"""

import struct
from typing import Any, Final

from pamqp import commands, common, decode, encode, header

from harebell.messaging.received_properties import ReceivedProperties, short_text

_MIN_INT32, _MAX_INT32 = -(2**31), 2**31 - 1
_CONTENT_HEADER: Final = struct.Struct(">HHQ")  # the class, the weight and the size of the body

_encode_value = encode.encode_table_value


def install() -> None:
    """Replace functions of pamqp in this process. A second call changes nothing."""
    encode.encode_table_value = _encode_number_or_value
    encode.field_table = _encode_table
    encode.METHODS["table"] = _encode_table
    commands.Basic.Publish.validate = _accept  # type: ignore[assignment]  # the patch
    decode.METHODS["shortstr"] = _decode_short_string
    header.ContentHeader.unmarshal = _keep_properties  # type: ignore[method-assign]  # the patch


def _keep_properties(self: Any, data: bytes) -> None:  # noqa: ANN401  # the class has no types
    """Set the attributes of a content header without decoding its properties."""
    self.class_id, self.weight, self.body_size = _CONTENT_HEADER.unpack_from(data)
    self.properties = ReceivedProperties(data[_CONTENT_HEADER.size :])


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


def _encode_table(value: "common.FieldTable") -> bytes:
    """Encode a table with its whole names. Raise `TypeError` for a name above 255 bytes."""
    fields = (encode.short_string(name) + encode.encode_table_value(value[name]) for name in value)
    output = b"".join(fields)
    return common.Struct.integer.pack(len(output)) + output


def _accept(_: object) -> None:
    """Accept each value that has an encoding. RabbitMQ refuses what it does not allow."""


def _decode_short_string(value: bytes) -> tuple[int, str]:
    if not value:
        raise ValueError("A short string must begin with its length, not be empty.")
    length = value[0]
    return length + 1, short_text(value[1 : length + 1])
