"""Messages to bytes and back: the only place that decodes JSON from the wire."""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, Final, TypeVar

import orjson
from pydantic import FailFast, TypeAdapter, ValidationError

from harebell.contract.errors import InvalidInput
from harebell.contract.message import Message, to_invalid_input

_LONG_DIGITS: Final = re.compile(rb"\d{19}")  # only then can an integer be beyond 64 bits
_MAX_DIGITS: Final = 20
_SMALLEST: Final = -(2**63)
_LARGEST: Final = 2**64

T = TypeVar("T")
M = TypeVar("M", bound=Message)


def list_adapter(model: type[M]) -> TypeAdapter[list[M]]:
    """Of a JSON array whose first fault says enough: a megabyte of rubbish has 300,000 of them."""
    return TypeAdapter(Annotated[list[model], FailFast()])  # type: ignore[arg-type,valid-type]  # its value


def encode(message: Message) -> bytes:
    return message.model_dump_json(by_alias=True, exclude_none=True).encode()


def encode_all(messages: Iterable[Message]) -> bytes:
    """A JSON array: the body of every bundle."""
    return b"[" + b",".join(map(encode, messages)) + b"]"


def encode_plain(records: Sequence[Mapping[str, Any]]) -> bytes:
    """What is told by the thousand, from plain values. Ids may be of a database driver's kind."""
    return orjson.dumps(records, default=str, option=orjson.OPT_UTC_Z)


def decode(body: bytes) -> Any:  # noqa: ANN401  # JSON
    """Raises `Malformed` for what is not JSON, or holds integers beyond 64 bits."""
    value = decode_trusted(body)
    if _LONG_DIGITS.search(body):
        _refuse_long_integers(body)
    return value


def decode_trusted(body: bytes) -> Any:  # noqa: ANN401  # JSON
    """Without the look for long integers, which costs more than decoding: ours have none."""
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise InvalidInput(f"not JSON: {error}", code="not_json") from None


def decode_model(adapter: TypeAdapter[T], body: bytes) -> T:
    """A message of our own, checked; raises `Malformed`."""
    try:
        return adapter.validate_json(body)
    except ValidationError as error:
        raise to_invalid_input(error.errors(include_url=False)[0]) from None


def _refuse_long_integers(body: bytes) -> None:
    def integer(digits: str) -> int:
        if len(digits) > _MAX_DIGITS or not _SMALLEST <= int(digits) < _LARGEST:
            raise InvalidInput(
                f"the integer {digits[:40]} is beyond 64 bits", code="integer_too_long"
            )
        return 0

    try:
        json.loads(body, parse_int=integer)
    except RecursionError:  # the interpreter's bound, where it is below that of orjson
        raise InvalidInput("is nested too deeply", code="too_deep") from None
