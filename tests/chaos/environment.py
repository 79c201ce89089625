"""Where a fault strikes: the stack, its servers and links, and the dice that choose the victim."""

import asyncio
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Final

from tests.acceptance.cluster_stack import ClusterStack
from tests.acceptance.recording_target import Target
from tests.acceptance.stack import Stack, until
from tests.chaos.links import BROKER, DATABASE, Links
from tests.chaos.result import Finding
from tests.chaos.result import Kind as Wrong
from tests.rig.servers import as_role

from harebell.dev.plan import ServiceCounts, ServiceKind, name_of
from harebell.dev.processes import is_ready
from harebell.dev.servers import PrivateServers

COUNTS: Final = ServiceCounts(tickers=2, dispatchers=2, executors=2)
MEMBERS: Final = COUNTS.members()
NAMES: Final = [name_of(*member) for member in MEMBERS]
READY: Final = 60.0  # seconds until a whole stack must be ready again

Member = tuple[ServiceKind, int]


@dataclass
class Scene:
    """`outage`: seconds that a fault lasts; `notes`: what a fault has measured by itself."""

    stack: Stack
    links: Links
    target: Target
    dice: Random
    outage: float
    tenant: str = ""  # whose schedules this wave's are; also the path of their targets
    notes: dict[str, float] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)  # of a fault that is a judge itself
    clustered: ClusterStack | None = None  # three nodes of RabbitMQ, instead of one

    @property
    def servers(self) -> PrivateServers:
        assert self.stack.servers.private is not None
        return self.stack.servers.private

    @property
    def cluster(self) -> ClusterStack:
        assert self.clustered is not None
        return self.clustered

    def some(self, *kinds: ServiceKind) -> Member:
        """Any instance of these."""
        return self.dice.choice(
            [member for member in MEMBERS if member[0] in (kinds or ServiceKind)]
        )

    def all_of(self, kind: ServiceKind) -> list[Member]:
        return [member for member in MEMBERS if member[0] is kind]

    async def start(
        self, member: Member, environment: Mapping[str, str] | None = None, *, ready: bool = True
    ) -> None:
        """By way of its links; `environment` has the last word."""
        kind, number = member
        name, stack = name_of(kind, number), self.stack
        through = {
            "HAREBELL_AMQP_URL": self.links.through(stack.amqp_url, name, BROKER),
            "HAREBELL_DATABASE_URL": self.links.through(
                as_role(stack.database_url, kind), name, DATABASE
            ),
        }
        await asyncio.to_thread(
            lambda: stack.start_one(kind, number, ready=ready, **through | dict(environment or {}))
        )

    async def start_all(self, members: Sequence[Member] = MEMBERS) -> None:
        for member in members:
            await self.start(member, ready=False)
        await self.until_ready()

    async def kill(self, member: Member) -> None:
        await asyncio.to_thread(self.stack.kill, name_of(*member))

    async def stop(self, member: Member) -> None:
        """In good order: SIGTERM."""
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

    def find(self, kind: Wrong, key: str, what: str) -> None:
        self.findings.append(Finding(kind, key, what))

    async def restart_dead(self) -> int:
        """Whatever has ended, as a supervisor would; how many those were."""
        dead = [member for member in MEMBERS if not self.is_alive(member)]
        for member in dead:
            await self.start(member, ready=False)
        return len(dead)

    async def until_ready(self, within: float = READY) -> None:
        """Until every service says that it is."""
        ports = [self.stack.services.plan(*member).port for member in MEMBERS]

        async def all_ready() -> bool:
            return all([await asyncio.to_thread(is_ready, port) for port in ports])

        await until(all_ready, within=within, what="every service's readiness")
