"""The client methods for circuit breakers.

Breakers belong to a tenant or hold all tenants. With a login of a tenant, you may list those that
hold its runs; every other method needs a login of an operator.
"""

from datetime import datetime

from harebell.client.base import ClientBase
from harebell.contract.amqp_names import OPERATIONS_TENANT
from harebell.contract.breakers import BreakerResponse
from harebell.contract.responses import Page
from harebell.contract.views import BreakerView


class BreakerMethods(ClientBase):
    """The methods for breakers of downstreams such as `acme.example:443` or `task:acme.report`."""

    async def breakers(self, *, own: bool = False) -> list[BreakerView]:
        """Return the breakers that are not closed, are forced, or closed within the last hour.

        With `own`, return the breakers of this client's tenant and those that hold all tenants.
        """
        tenant = None if own else OPERATIONS_TENANT
        page: Page[BreakerView] = await self._query("breaker.list", {}, tenant=tenant)
        return page.items

    async def open_breaker(
        self,
        downstream: str,
        *,
        tenant: str | None = None,
        until: datetime | str | None = None,
        note: str | None = None,
    ) -> BreakerResponse:
        """Force a breaker open, permanently or until a time, so that its tickets are deferred.

        Without `tenant`, the tickets of all tenants are deferred.
        """
        return await self._change(
            "breaker.open", downstream, for_tenant=tenant, until=until, note=note
        )

    async def close_breaker(
        self,
        downstream: str,
        *,
        tenant: str | None = None,
        until: datetime | str | None = None,
        note: str | None = None,
    ) -> BreakerResponse:
        """Force a breaker closed, permanently or until a time, so that its tickets pass.

        Without `tenant`, the tickets of all tenants pass.
        """
        return await self._change(
            "breaker.close", downstream, for_tenant=tenant, until=until, note=note
        )

    async def reset_breaker(
        self, downstream: str, *, tenant: str | None = None, note: str | None = None
    ) -> BreakerResponse:
        """End a forced state, so that the outcomes of attempts decide again."""
        return await self._change("breaker.reset", downstream, for_tenant=tenant, note=note)

    async def _change(self, verb: str, downstream: str, **fields: object) -> BreakerResponse:
        given = {name: value for name, value in fields.items() if value is not None}
        return await self._command(
            BreakerResponse, verb, {"downstream": downstream, **given}, tenant=OPERATIONS_TENANT
        )
