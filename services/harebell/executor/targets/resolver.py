"""Names to addresses for http targets: a name that leads to a refused address leads nowhere.

aiohttp connects to the addresses that this returns and asks no one again, so what was checked is
what is reached, whatever the name says a moment later.
"""

import socket
from collections.abc import Sequence
from ipaddress import ip_address

from aiohttp.abc import AbstractResolver, ResolveResult

from harebell.contract.errors import PrivateAddress
from harebell.kernel.addresses import Network, is_allowed_address


class CheckedResolver(AbstractResolver):
    def __init__(self, inner: AbstractResolver, networks: Sequence[Network]) -> None:
        self._inner = inner
        self._networks = networks

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        """Raises `PrivateAddress` if any address is refused: one that is not would be luck.

        The address stays unsaid, or a schedule could be used to read our internal DNS.
        """
        results = await self._inner.resolve(host, port, family)
        if not all(
            is_allowed_address(ip_address(result["host"]), self._networks) for result in results
        ):
            raise PrivateAddress(f"{host} is not at a public address", field="url")
        return results

    async def close(self) -> None:
        await self._inner.close()
