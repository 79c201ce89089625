"""A stack on a broker that operators prepared with the definitions file."""

from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from tests.acceptance.stack import Stack, Tenant
from tests.rig.fork_server import start_copy
from tests.rig.servers import Servers

from harebell.client import Client
from harebell.contract.amqp_names import tenant_exchange
from harebell.contract.schedule import DEFAULT_POOL
from harebell.dev.plan import ServiceKind
from harebell.dev.servers import run_concurrently
from harebell.dev.spawn import StartProcess
from harebell.messaging.topology.declarations import ExchangeKind
from harebell.messaging.topology.definitions_file import InstallationOptions, definitions_file
from harebell.messaging.topology.permissions import operator_user

PASSWORD: Final = "for-tests"  # noqa: S105  # of a throwaway broker


@dataclass(kw_only=True)
class Production:
    """A stack whose services have separate users and declare no part of the topology."""

    stack: Stack
    tenants: Sequence[str] = ()
    pools: Sequence[str] = ()
    operators: Sequence[str] = ()  # people with a login each
    declares: bool = False  # whether the tenants may declare their own exchanges and queues
    tenant_queues: Mapping[str, Mapping[str, tuple[str, ...]]] = field(default_factory=dict)
    delayed_exchanges: Mapping[str, ExchangeKind] = field(default_factory=dict)

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
        operators: Sequence[str] = (),
        declares: bool = False,
        tenant_queues: Mapping[str, Mapping[str, tuple[str, ...]]] | None = None,
        delayed_exchanges: Mapping[str, ExchangeKind] | None = None,
        start: StartProcess = start_copy,
    ) -> Iterator["Production"]:
        """Yield a prepared broker without a running service. `start` starts the process of one."""
        with Stack.open(servers, root, vhost, start=start) as stack:
            production = cls(
                stack=stack,
                tenants=tuple(tenants),
                pools=tuple(pools),
                operators=tuple(operators),
                declares=declares,
                tenant_queues=tenant_queues or {},
                delayed_exchanges=delayed_exchanges or {},
            )
            production.prepare(servers, tenants)
            yield production

    def prepare(self, servers: Servers, tenants: Sequence[str]) -> None:
        """Import the definitions with these tenants."""
        self.tenants = tuple(tenants)
        servers.management(
            "POST",
            "definitions",
            definitions_file(self.options(tenants), lambda n: b"salt"[:n]),
        )

    def options(self, tenants: Sequence[str]) -> InstallationOptions:
        """Return the options of the definitions, in which each user has a password."""
        people = {"tenants": tuple(tenants), "operators": tuple(self.operators)}
        users = [each.name for each in InstallationOptions(**people).users]
        return InstallationOptions(
            vhost=urlsplit(self.stack.amqp_url).path.removeprefix("/"),
            **people,
            declaring=tuple(tenants) if self.declares else (),
            tenant_queues=self.tenant_queues,
            delayed_exchanges=self.delayed_exchanges,
            pools=tuple(self.pools),
            passwords=dict.fromkeys(users, PASSWORD),
        )

    def url(self, user: str) -> str:
        parts = urlsplit(self.stack.amqp_url)
        address = f"{user}:{PASSWORD}@{parts.hostname}:{parts.port}"
        return parts._replace(netloc=address).geturl()

    def client(self, tenant: str, *, timeout: float = 10) -> AbstractAsyncContextManager[Client]:
        """Return a client with only the rights of the login of this tenant."""
        return Client.connect(
            self.url(tenant), tenant=tenant, exchange=tenant_exchange(tenant), timeout=timeout
        )

    @asynccontextmanager
    async def tenant(self, name: str) -> AsyncIterator[Tenant]:
        """Yield a tenant whose client has only the rights of the login of this tenant."""
        async with self.stack.tenant(name) as owner, self.client(name) as harebell:
            yield replace(owner, harebell=harebell)

    def start(
        self,
        *kinds: ServiceKind,
        number: int = 1,
        pool: str = DEFAULT_POOL,
        tenants_file: Path | None = None,
        is_awaited: bool = True,
        **environment: str,
    ) -> None:
        """Start one instance of each service or of each named service, all at the same time.

        `pool` is the pool of an executor. `environment` contains further settings. A service that
        a failpoint kills may never be ready, so its start needs `is_awaited=False`.
        """
        if tenants_file is not None:
            environment["HAREBELL_TENANTS_FILE"] = str(tenants_file)
        if self.operators:
            logins = [operator_user(name).name for name in self.operators]
            environment.setdefault("HAREBELL_OPERATORS", ",".join(logins))

        def start(kind: ServiceKind) -> None:
            variables = {
                "HAREBELL_AMQP_URL": self.url(f"harebell_{kind}"),
                "HAREBELL_TOPOLOGY_MODE": "check",  # the local stack declares by default
                "HAREBELL_POOL": pool,
                "HAREBELL_TENANTS": ",".join(self.tenants),
            } | environment
            self.stack.start_one(kind, number, ready=is_awaited, **variables)

        run_concurrently([partial(start, kind) for kind in kinds or ServiceKind])
