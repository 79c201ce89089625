"""The conversion of messages to bytes and back. Only this module decodes JSON of a message."""

import json
import re
from codecs import BOM_UTF8, BOM_UTF16_BE, BOM_UTF16_LE
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, Final, TypeVar

import orjson
from pydantic import FailFast, TypeAdapter, ValidationError

from harebell.contract.errors import InvalidInput
from harebell.contract.message import Message, to_invalid_input

_LONG_DIGITS: Final = re.compile(rb"\d{19}")  # shorter integers always fit in 64 bits
_MAX_DIGITS: Final = 20
_SMALLEST: Final = -(2**63)
_LARGEST: Final = 2**64

# The first bytes of forms that are no JSON in UTF-8.
_OTHER_FORMS: Final = {
    b"\x1f\x8b": "compressed with gzip",
    b"\x28\xb5\x2f\xfd": "compressed with Zstandard",
    b"\x78\x01": "compressed with zlib",
    b"\x78\x9c": "compressed with zlib",
    b"\x78\xda": "compressed with zlib",
    b"BZh": "compressed with bzip2",
    b"\xfd7zXZ\x00": "compressed with xz",
    b"PK\x03\x04": "a zip archive",
    BOM_UTF16_LE: "in UTF-16",
    BOM_UTF16_BE: "in UTF-16",
    b"{\x00": "in UTF-16",
    b"\x00{": "in UTF-16",
    b"[\x00": "in UTF-16",
    b"\x00[": "in UTF-16",
}

T = TypeVar("T")
M = TypeVar("M", bound=Message)


def list_adapter(model: type[M]) -> TypeAdapter[list[M]]:
    """Return the adapter of a JSON array.

    The adapter stops at the first error, because 1 MB of invalid items has 300,000 errors.
    """
    return TypeAdapter(Annotated[list[model], FailFast()])  # type: ignore[arg-type,valid-type]  # its value


def encode(message: Message) -> bytes:
    """Return the message as JSON without the fields that are null."""
    return message.model_dump_json(by_alias=True, exclude_none=True).encode()


def encode_all(messages: Iterable[Message]) -> bytes:
    """Return a JSON array, which is the body of every batch."""
    return b"[" + b",".join(map(encode, messages)) + b"]"


def encode_plain(records: Sequence[Mapping[str, Any]]) -> bytes:
    """Return a JSON array of plain values. The database driver has its own type of UUIDs."""
    return orjson.dumps(records, default=str, option=orjson.OPT_UTC_Z)


def decode(body: bytes) -> Any:  # noqa: ANN401  # JSON
    """Return the JSON value. Raise `InvalidInput` for other bytes and for integers over 64 bits.

    A byte order mark of UTF-8 is ignored.
    """
    body = body.removeprefix(BOM_UTF8)
    value = decode_trusted(body)
    if _LONG_DIGITS.search(body):
        _reject_long_integers(body)
    return value


def decode_trusted(body: bytes) -> Any:  # noqa: ANN401  # JSON
    """Return the JSON value without the check for long integers, which takes longer than decoding.

    Messages of Harebell contain no long integers.
    """
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise InvalidInput(_why_not_json(body, error), code="not_json") from None


def _why_not_json(body: bytes, error: orjson.JSONDecodeError) -> str:
    """Return the reason for the person who wrote the body."""
    for start, form in _OTHER_FORMS.items():
        if body.startswith(start):
            return f"The body must be JSON in UTF-8, but it is {form}."
    try:
        body.decode()
    except UnicodeDecodeError as invalid:
        return f"The text must be UTF-8, but byte {invalid.start} is 0x{body[invalid.start]:02x}."
    return f"The text is not JSON: {error}." if body else "The text must be JSON, but it is empty."


def decode_model(adapter: TypeAdapter[T], body: bytes) -> T:
    """Return a message of another service. Raise `InvalidInput` for an invalid body."""
    try:
        return adapter.validate_json(body)
    except ValidationError as error:
        raise to_invalid_input(error.errors(include_url=False)[0]) from None


def _reject_long_integers(body: bytes) -> None:
    def integer(digits: str) -> int:
        if len(digits) > _MAX_DIGITS or not _SMALLEST <= int(digits) < _LARGEST:
            reason = f"The integer {digits[:40]} has more than 64 bits."
            raise InvalidInput(reason, code="integer_too_long")
        return 0

    try:
        json.loads(body, parse_int=integer)
    except RecursionError:  # the limit of the interpreter may be lower than that of orjson
        reason = "The JSON value must not be nested deeper than the JSON parser permits."
        raise InvalidInput(reason, code="too_deep") from None
