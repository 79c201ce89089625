"""The client methods for circuit breakers.

A breaker belongs to no tenant, so the login needs permission for the operations tenant.
"""

from datetime import datetime

from harebell.client.base import ClientBase
from harebell.contract.amqp_names import OPERATIONS_TENANT
from harebell.contract.breakers import BreakerResponse
from harebell.contract.responses import Page
from harebell.contract.views import BreakerView


class BreakerMethods(ClientBase):
    """The methods for breakers of downstreams such as `acme.example:443` or `task:acme.report`."""

    async def breakers(self) -> list[BreakerView]:
        """Return the breakers that are not closed, are forced, or closed within the last hour."""
        page: Page[BreakerView] = await self._query("breaker.list", {}, tenant=OPERATIONS_TENANT)
        return page.items

    async def open_breaker(
        self, downstream: str, *, until: datetime | str | None = None, note: str | None = None
    ) -> BreakerResponse:
        """Force a breaker open, permanently or until a time, so that its tickets are deferred."""
        return await self._change("breaker.open", downstream, until=until, note=note)

    async def close_breaker(
        self, downstream: str, *, until: datetime | str | None = None, note: str | None = None
    ) -> BreakerResponse:
        """Force a breaker closed, permanently or until a time, so that its tickets pass."""
        return await self._change("breaker.close", downstream, until=until, note=note)

    async def reset_breaker(self, downstream: str, *, note: str | None = None) -> BreakerResponse:
        """End a forced state, so that the outcomes of attempts decide again."""
        return await self._change("breaker.reset", downstream, note=note)

    async def _change(self, verb: str, downstream: str, **fields: object) -> BreakerResponse:
        given = {name: value for name, value in fields.items() if value is not None}
        return await self._command(
            BreakerResponse, verb, {"downstream": downstream, **given}, tenant=OPERATIONS_TENANT
        )
