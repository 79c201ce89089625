"""Properties that are not UTF-8 are read with replacement characters, not with a lost connection.

AMQP's short strings are bytes to the broker. The library decodes them strictly and gives up the
connection where it cannot; the message comes again with the next one, so that one badly encoded
property stops a queue, and drives whatever was prefetched with it to its delivery limit.
"""

from pamqp import common, decode

_LENGTH = 4  # bytes that say how long a table is

_strict_table = decode.METHODS["table"]


def install() -> None:
    """For this process; idempotent."""
    decode.METHODS["shortstr"] = _short_string
    decode.METHODS["table"] = _table


def _short_string(value: bytes) -> tuple[int, str]:
    if not value:
        raise ValueError("a short string without its length")
    length = value[0]
    return length + 1, value[1 : length + 1].decode(errors="replace")


def _table(value: bytes) -> tuple[int, common.FieldValue]:
    """Headers with a name that cannot be read are left out whole: none of them is needed."""
    try:
        return _strict_table(value)
    except UnicodeDecodeError:
        return _LENGTH + int.from_bytes(value[:_LENGTH], "big"), {}
