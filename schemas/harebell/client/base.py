"""The base of the client: one request, one checked response, and lists page by page."""

from collections.abc import AsyncIterator, Mapping
from typing import Any, TypeVar

from harebell.client.rpc import Transport
from harebell.contract.amqp_names import COMMANDS, DEFAULT_TENANT, QUERIES, tenant_exchange
from harebell.contract.commands import COMMANDS as COMMAND_MODELS
from harebell.contract.errors import CommandRejected, InvalidInput, NotAllowed
from harebell.contract.json_codec import decode, encode
from harebell.contract.message import Message, parse
from harebell.contract.queries import MAX_PAGE
from harebell.contract.queries import QUERIES as QUERY_MODELS
from harebell.contract.responses import QUERY_RESPONSES, ErrorResponse

M = TypeVar("M", bound=Message)


class ClientBase:
    """The base of each group of client methods."""

    def __init__(
        self, transport: Transport, *, tenant: str = DEFAULT_TENANT, exchange: str | None = None
    ) -> None:
        """Define the tenant, and the exchange of its login: `amqp_names.tenant_exchange`."""
        self._transport = transport
        self._tenant = tenant
        self._exchange = exchange

    async def _command(
        self,
        response: type[M],
        verb: str,
        fields: Mapping[str, object],
        *,
        tenant: str | None = None,
    ) -> M:
        """Send a checked command and return its response. `tenant` replaces that of the client."""
        body = encode(parse(COMMAND_MODELS[verb], fields))
        return parse_response(response, await self._request(COMMANDS, verb, body, tenant=tenant))

    async def _query(
        self, verb: str, fields: Mapping[str, object], *, tenant: str | None = None
    ) -> Any:  # noqa: ANN401  # the type depends on the query
        """Send a checked query and return its response, of the type in `QUERY_RESPONSES`."""
        body = encode(parse(QUERY_MODELS[verb], fields))
        reply = await self._request(QUERIES, verb, body, tenant=tenant)
        return parse_response(QUERY_RESPONSES[verb], reply)

    async def _rows(
        self, verb: str, fields: Mapping[str, object], limit: int | None
    ) -> AsyncIterator[Any]:
        """Yield the views of a list, page by page, until `limit`."""
        after: str | None = None
        left = limit
        while left is None or left > 0:
            size = MAX_PAGE if left is None else min(left, MAX_PAGE)
            page = await self._query(verb, {**fields, "limit": size, "after": after})
            for item in page.items:
                yield item
            if page.next is None:
                return
            after = page.next
            left = None if left is None else left - len(page.items)

    async def _request(
        self, exchange: str, verb: str, body: bytes, *, tenant: str | None = None
    ) -> bytes:
        """Send a request to the exchange of the login, or else to that of all tenants."""
        owner = tenant or self._tenant
        try:
            return await self._transport.request(
                self._exchange or exchange, verb, body, tenant=owner
            )
        except NotAllowed as error:
            if self._exchange is not None:
                raise
            own = tenant_exchange(owner)
            reason = f"{error.reason} The login of a tenant publishes to {own} (HAREBELL_EXCHANGE)."
            raise NotAllowed(reason, field=error.field, code=error.code) from error


def parse_response(model: type[M], body: bytes) -> M:
    """Return the response. Raise `CommandRejected` for an error response."""
    value = decode(body)
    if _is_error(value):
        raise _rejection(parse(ErrorResponse, value))
    return parse(model, value)


def parse_responses(model: type[M], body: bytes, *, expected: int) -> list[M | ErrorResponse]:
    """Return one response for each item, in order.

    Raise `CommandRejected` if Harebell rejected the whole message.
    """
    value = decode(body)
    if _is_error(value):
        raise _rejection(parse(ErrorResponse, value))
    if not isinstance(value, list) or len(value) != expected:
        found = len(value) if isinstance(value, list) else "a single object"
        raise InvalidInput(f"The reply must contain {expected} responses, not {found}.")
    return [parse(ErrorResponse, item) if _is_error(item) else parse(model, item) for item in value]


def _is_error(value: object) -> bool:
    return isinstance(value, dict) and value.get("ok") is False


def _rejection(response: ErrorResponse) -> CommandRejected:
    error = response.error
    return CommandRejected(
        error.reason, field=error.field, code=error.code, retry_after=error.retry_after
    )
