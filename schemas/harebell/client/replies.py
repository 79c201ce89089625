"""What came back: a model of the contract, or a refusal, raised or among the answers."""

from typing import TypeVar

from harebell.contract.answers import ErrorResponse
from harebell.contract.codec import decode
from harebell.contract.errors import CommandRejected, InvalidInput
from harebell.contract.message import Message, parse

M = TypeVar("M", bound=Message)


def parse_response(model: type[M], body: bytes) -> M:
    """Raises `Refused`."""
    value = decode(body)
    if _is_refusal(value):
        raise _refused(parse(ErrorResponse, value))
    return parse(model, value)


def parse_responses(model: type[M], body: bytes, *, expected: int) -> list[M | ErrorResponse]:
    """One answer per item, in order. Raises `Refused` where the message as a whole was."""
    value = decode(body)
    if _is_refusal(value):
        raise _refused(parse(ErrorResponse, value))
    if not isinstance(value, list) or len(value) != expected:
        raise InvalidInput(f"{expected} answers were expected; got another reply")
    return [
        parse(ErrorResponse, item) if _is_refusal(item) else parse(model, item) for item in value
    ]


def _is_refusal(value: object) -> bool:
    return isinstance(value, dict) and value.get("ok") is False


def _refused(refusal: ErrorResponse) -> CommandRejected:
    error = refusal.error
    return CommandRejected(error.reason, field=error.field, code=error.code)
