"""What came back: a model of the contract, or a refusal, raised or among the answers."""

from typing import TypeVar

from harebell.contract.answers import Refusal
from harebell.contract.codec import decode
from harebell.contract.errors import Malformed, Refused
from harebell.contract.message import Message, parse

M = TypeVar("M", bound=Message)


def one(model: type[M], body: bytes) -> M:
    """Raises `Refused`."""
    value = decode(body)
    if _is_refusal(value):
        raise _refused(parse(Refusal, value))
    return parse(model, value)


def several(model: type[M], body: bytes, *, expected: int) -> list[M | Refusal]:
    """One answer per item, in order. Raises `Refused` where the message as a whole was."""
    value = decode(body)
    if _is_refusal(value):
        raise _refused(parse(Refusal, value))
    if not isinstance(value, list) or len(value) != expected:
        raise Malformed(f"{expected} answers were expected; got another reply")
    return [parse(Refusal, item) if _is_refusal(item) else parse(model, item) for item in value]


def _is_refusal(value: object) -> bool:
    return isinstance(value, dict) and value.get("ok") is False


def _refused(refusal: Refusal) -> Refused:
    error = refusal.error
    return Refused(error.reason, field=error.field, code=error.code)
