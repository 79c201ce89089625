"""Patch of pamqp: properties that are not UTF-8 are decoded with replacement characters.

A short string of AMQP is a byte string for the broker.
pamqp decodes short strings strictly, and the error closes the connection.
The broker then delivers the message again, so one such message stops its queue.
Each delivery also brings the other prefetched messages closer to their delivery limit.
Decision 8 gives the condition for the removal of this patch.
"""

from pamqp import common, decode

_LENGTH_BYTES = 4  # of the length at the start of a table

_decode_table_strictly = decode.METHODS["table"]


def install() -> None:
    """Replace two decoders of pamqp in this process. A second call changes nothing."""
    decode.METHODS["shortstr"] = _decode_short_string
    decode.METHODS["table"] = _decode_table


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
