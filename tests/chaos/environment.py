"""The environment of a round: a stack with its servers and links, and a seeded random source."""

import asyncio
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Final

from tests.acceptance.cluster_stack import ClusterStack
from tests.acceptance.recording_target import Target
from tests.acceptance.stack import Stack
from tests.chaos.links import BROKER, DATABASE, Links
from tests.chaos.result import Finding, FindingKind
from tests.rig.polling import until
from tests.rig.servers import as_role
from tests.rig.standby import StandbyPair

from harebell.dev.plan import ServiceCounts, ServiceKind, name_of
from harebell.dev.processes import is_ready
from harebell.dev.servers import PrivateServers

COUNTS: Final = ServiceCounts(tickers=2, dispatchers=2, executors=2)
MEMBERS: Final = COUNTS.members()
NAMES: Final = [name_of(*member) for member in MEMBERS]
READY_TIMEOUT: Final = 60.0  # seconds for a whole stack

Member = tuple[ServiceKind, int]


@dataclass(kw_only=True)
class Environment:
    """The stack of a round, and the results of its faults."""

    stack: Stack
    links: Links
    target: Target
    random: Random
    outage: float  # seconds that a fault lasts
    tenant: str = ""  # of the schedules of this round; also the path of their targets
    measurements: dict[str, float] = field(default_factory=dict)  # of a fault
    findings: list[Finding] = field(default_factory=list)  # of a fault with its own checks
    cluster_stack: ClusterStack | None = None  # three nodes of RabbitMQ instead of one
    standby_pair: StandbyPair | None = None  # two PostgreSQL clusters instead of one

    @property
    def servers(self) -> PrivateServers:
        assert self.stack.servers.private is not None
        return self.stack.servers.private

    @property
    def cluster(self) -> ClusterStack:
        assert self.cluster_stack is not None
        return self.cluster_stack

    @property
    def pair(self) -> StandbyPair:
        assert self.standby_pair is not None
        return self.standby_pair

    def choose_member(self, *kinds: ServiceKind) -> Member:
        """Return a random instance of one of the kinds, or of any kind."""
        return self.random.choice(
            [member for member in MEMBERS if member[0] in (kinds or ServiceKind)]
        )

    def members_of(self, kind: ServiceKind) -> list[Member]:
        return [member for member in MEMBERS if member[0] is kind]

    async def start(
        self, member: Member, variables: Mapping[str, str] | None = None, *, ready: bool = True
    ) -> None:
        """Start a service that reaches its servers through its links. `variables` override them."""
        kind, number = member
        name, stack = name_of(kind, number), self.stack
        urls = {
            "HAREBELL_AMQP_URL": self.links.through(stack.amqp_url, name, BROKER),
            "HAREBELL_DATABASE_URL": self.links.through(
                as_role(stack.database_url, kind), name, DATABASE
            ),
        }
        await asyncio.to_thread(
            lambda: stack.start_one(kind, number, ready=ready, **urls | dict(variables or {}))
        )

    async def start_all(self, members: Sequence[Member] = MEMBERS) -> None:
        for member in members:
            await self.start(member, ready=False)
        await self.until_ready()

    async def kill(self, member: Member) -> None:
        await asyncio.to_thread(self.stack.kill, name_of(*member))

    async def stop(self, member: Member) -> None:
        """Stop a service with SIGTERM and wait for its end."""
        await asyncio.to_thread(self.stack.stop, name_of(*member))

    def send(self, member: Member, number: signal.Signals) -> None:
        process = self.stack.services.process(name_of(*member))
        if process is not None:
            process.send(number)

    def is_alive(self, member: Member) -> bool:
        return self.stack.services.process(name_of(*member)) is not None

    def is_frozen(self, member: Member) -> bool:
        process = self.stack.services.process(name_of(*member))
        if process is None:
            return False
        after_name = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2]
        return after_name.split()[0] == "T"

    def add_finding(self, kind: FindingKind, key: str, text: str) -> None:
        self.findings.append(Finding(kind, key, text))

    async def restart_dead(self) -> int:
        """Start every service that has ended, as a supervisor does, and return their number."""
        dead = [member for member in MEMBERS if not self.is_alive(member)]
        for member in dead:
            await self.start(member, ready=False)
        return len(dead)

    async def until_ready(self, within: float = READY_TIMEOUT) -> None:
        """Wait until every service reports that it is ready."""
        ports = [self.stack.services.plan(*member).port for member in MEMBERS]

        async def all_ready() -> bool:
            return all([await asyncio.to_thread(is_ready, port) for port in ports])

        await until(all_ready, within=within, what="the readiness of every service")
