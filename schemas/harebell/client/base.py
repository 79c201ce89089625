"""One question, one answer, checked on its way out and on its way back; lists page by page."""

from collections.abc import AsyncIterator, Mapping
from typing import Any, Final, TypeAlias, TypeVar

from harebell.client.rpc import Transport
from harebell.contract.amqp_names import COMMANDS, QUERIES
from harebell.contract.commands import COMMANDS as COMMAND_MODELS
from harebell.contract.errors import CommandRejected, InvalidInput
from harebell.contract.json_codec import decode, encode
from harebell.contract.message import Message, parse
from harebell.contract.queries import MAX_PAGE
from harebell.contract.queries import QUERIES as QUERY_MODELS
from harebell.contract.responses import ErrorResponse, One, Page

DEFAULT_TENANT: Final = "default"

View: TypeAlias = dict[str, Any]  # a row as Harebell shows it; fields may be added


class ClientBase:
    """What every part of the client is made of."""

    def __init__(self, courier: Transport, *, tenant: str = DEFAULT_TENANT) -> None:
        self._courier = courier
        self._tenant = tenant

    async def _command(self, verb: str, fields: Mapping[str, object]) -> bytes:
        return await self._ask(COMMANDS, verb, encode(parse(COMMAND_MODELS[verb], fields)))

    async def _query(self, verb: str, fields: Mapping[str, object]) -> bytes:
        return await self._ask(QUERIES, verb, encode(parse(QUERY_MODELS[verb], fields)))

    async def _view(self, verb: str, fields: Mapping[str, object]) -> View:
        item: View = parse_response(One, await self._query(verb, fields)).item
        return item

    async def _rows(
        self, verb: str, only: Mapping[str, object], limit: int | None
    ) -> AsyncIterator[View]:
        after: str | None = None
        left = limit
        while left is None or left > 0:
            size = MAX_PAGE if left is None else min(left, MAX_PAGE)
            page = parse_response(
                Page, await self._query(verb, {**only, "limit": size, "after": after})
            )
            for item in page.items:
                yield item
            if page.next is None:
                return
            after = page.next
            left = None if left is None else left - len(page.items)

    async def _ask(self, exchange: str, verb: str, body: bytes) -> bytes:
        return await self._courier.request(exchange, self._tenant, verb, body)


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
