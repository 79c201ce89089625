"""Circuit breakers, as those who run Harebell see them: whose runs are held back, and for how long.

They are no tenant's: the login must be one that may publish for any.
"""

from datetime import datetime

from harebell.client.base import ClientBase, View, parse_response
from harebell.contract.amqp_names import COMMANDS, OPERATIONS_TENANT, QUERIES
from harebell.contract.breakers import BreakerResponse
from harebell.contract.commands import COMMANDS as COMMAND_MODELS
from harebell.contract.json_codec import encode
from harebell.contract.message import parse
from harebell.contract.responses import Page


class BreakerMethods(ClientBase):
    """A downstream is named http:acme.example, amqp:acme.jobs or task:acme.report."""

    async def breakers(self) -> list[View]:
        """Those that are open or half open, are forced, or have closed within the hour."""
        return parse_response(
            Page, await self._courier.request(QUERIES, OPERATIONS_TENANT, "breaker.list", b"{}")
        ).items

    async def open_breaker(
        self, downstream: str, *, until: datetime | str | None = None, note: str | None = None
    ) -> BreakerResponse:
        """Hold back its runs, whatever comes of attempts."""
        return await self._order("open", downstream, until=until, note=note)

    async def close_breaker(
        self, downstream: str, *, until: datetime | str | None = None, note: str | None = None
    ) -> BreakerResponse:
        """Let its runs pass, whatever comes of attempts."""
        return await self._order("close", downstream, until=until, note=note)

    async def reset_breaker(self, downstream: str, *, note: str | None = None) -> BreakerResponse:
        """Let what comes of attempts decide again."""
        return await self._order("auto", downstream, note=note)

    async def _order(self, what: str, downstream: str, **fields: object) -> BreakerResponse:
        verb = f"breaker.{what}"
        given = {name: value for name, value in fields.items() if value is not None}
        body = encode(parse(COMMAND_MODELS[verb], {"downstream": downstream, **given}))
        return parse_response(
            BreakerResponse, await self._courier.request(COMMANDS, OPERATIONS_TENANT, verb, body)
        )
