"""The stack as it runs where operators own the broker, made from the definitions file."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from tests.acceptance.stack import Stack
from tests.rig.servers import Servers

from harebell.contract.schedule import DEFAULT_POOL
from harebell.dev.plan import ServiceKind
from harebell.messaging.topology.definitions_file import InstallationOptions, definitions_file

SECRET: Final = "for-tests"  # noqa: S105  # of a throwaway broker


@dataclass
class Production:
    """Every service has its own user, and none declares anything of Harebell's."""

    stack: Stack

    @classmethod
    @contextmanager
    def open(
        cls,
        servers: Servers,
        root: Path,
        *,
        vhost: str | None = None,
        tenants: Sequence[str] = (),
        pools: Sequence[str] = (),
    ) -> Iterator["Production"]:
        """Nothing runs yet."""
        with Stack.open(servers, root, vhost) as stack:
            named = urlsplit(stack.amqp_url).path.removeprefix("/")
            users = [each.name for each in InstallationOptions(tenants=tuple(tenants)).users]
            wanted = InstallationOptions(
                vhost=named,
                tenants=tuple(tenants),
                pools=tuple(pools),
                passwords=dict.fromkeys(users, SECRET),
            )
            servers.management(
                "POST", "definitions", definitions_file(wanted, lambda n: b"salt"[:n])
            )
            try:
                yield cls(stack)
            finally:
                stack.stop()
                for user in users:
                    servers.management("DELETE", f"users/{user}")

    def url(self, user: str) -> str:
        parts = urlsplit(self.stack.amqp_url)
        place = f"{user}:{SECRET}@{parts.hostname}:{parts.port}"
        return parts._replace(netloc=place).geturl()

    def start(self, *kinds: ServiceKind, number: int = 1, pool: str = DEFAULT_POOL) -> None:
        """One of each, or of those that are named; `pool`: of an executor."""
        for kind in kinds or ServiceKind:
            self.stack.start_one(
                kind,
                number,
                HAREBELL_AMQP_URL=self.url(f"harebell_{kind}"),
                HAREBELL_TOPOLOGY="check",
                HAREBELL_POOL=pool,
            )
