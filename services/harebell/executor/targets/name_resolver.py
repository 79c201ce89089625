"""The look-ups of host names: without a thread, with a time limit and a bound of each tenant."""

import asyncio
import errno
import socket
from contextvars import ContextVar
from dataclasses import dataclass, field
from ipaddress import ip_address
from typing import Final

from aiohttp.abc import AbstractResolver, ResolveResult

from harebell.contract.errors import PrivateAddress
from harebell.domain.url_policy import Egress, is_allowed_address

DNS_TRY: Final = 2.0  # seconds for the first answer of a name server; c-ares doubles them
DNS_TRIES: Final = 2  # of each name server
LOOKUP_TIMEOUT: Final = 5.0  # seconds for one look-up, with the wait for a place
MAX_LOOKUPS: Final = 20  # of one tenant at the same time; further ones wait

# The connector has no parameter for the tenant, and each attempt has its own context.
TENANT: Final[ContextVar[str]] = ContextVar("tenant", default="")


@dataclass(slots=True)
class _Lookups:
    """The look-ups of one tenant that wait or are in progress, and their places."""

    number: int = 0
    places: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(MAX_LOOKUPS))


class BoundedResolver(AbstractResolver):
    """A resolver whose look-ups of one tenant never delay those of another one.

    A name server that never answers fails the attempts of its own tenant after `LOOKUP_TIMEOUT`.
    """

    def __init__(self, inner: AbstractResolver) -> None:
        self._inner = inner
        self._lookups: dict[str, _Lookups] = {}  # of tenants with a look-up, which slots bound

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        """Resolve the host. Raise `OSError` without an answer in time."""
        tenant = TENANT.get()
        lookups = self._lookups.setdefault(tenant, _Lookups())
        lookups.number += 1
        try:
            async with asyncio.timeout(LOOKUP_TIMEOUT), lookups.places:
                return await self._inner.resolve(host, port, family)
        except TimeoutError:
            reason = f"The name servers did not answer within {LOOKUP_TIMEOUT:g} s."
            raise OSError(errno.ETIMEDOUT, reason) from None
        finally:
            lookups.number -= 1
            if not lookups.number:
                del self._lookups[tenant]

    async def close(self) -> None:
        await self._inner.close()


class CheckedResolver(AbstractResolver):
    """A resolver that permits only public addresses and the allowed networks."""

    def __init__(self, inner: AbstractResolver, egress: Egress) -> None:
        self._inner = inner
        self._egress = egress

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        """Resolve the host. Raise `PrivateAddress` if any of its addresses is not permitted.

        The error does not contain the address, because a schedule could read the internal DNS.
        """
        results = await self._inner.resolve(host, port, family)
        if not all(
            is_allowed_address(
                ip_address(result["host"]), self._egress.allowed, self._egress.denied
            )
            for result in results
        ):
            reason = f"The host {host} must have only public or allowed addresses."
            raise PrivateAddress(reason, field="url")
        return results

    async def close(self) -> None:
        await self._inner.close()
