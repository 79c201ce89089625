"""A cluster of three brokers with a stack, and a load, for tests that break the cluster."""

import asyncio
import os
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tests.acceptance.faults import put_spread, start, until_called, until_ready
from tests.acceptance.recording_target import Call, Target
from tests.acceptance.stack import Stack, Tenant
from tests.rig.cluster import Cluster
from tests.rig.polling import until
from tests.rig.servers import Servers, manage

from harebell.dev.plan import ServiceCounts, ServiceKind
from harebell.dev.ports import LOOPBACK
from harebell.dev.rabbitmq import Broker

PAIRS = ServiceCounts(tickers=2, dispatchers=2, executors=2)
MINORITY_CONTINUES = (os.environ.get("BROKER") or "").startswith("4.3")  # RabbitMQ
LOAD_SIZE = 160
LOAD_DURATION = 8.0  # seconds
READY_TIMEOUT = (
    30.0  # seconds from an open port until every service consumes again, on a busy machine
)
MEMBERS_TIMEOUT = 120.0  # seconds until each queue has a member on each node, on a busy machine
BACKLOG_TIMEOUT = 30.0  # seconds from then until every run has ended


@dataclass(frozen=True)
class ClusterStack:
    """A stack whose services connect to every node of a cluster."""

    cluster: Cluster
    stack: Stack

    @classmethod
    @contextmanager
    def open(
        cls, servers: Servers, root: Path, counts: ServiceCounts | None = PAIRS
    ) -> Iterator["ClusterStack"]:
        """Yield a stack on a new cluster and the database of `servers`.

        No service runs if `counts` is None.
        """
        cluster = Cluster(root / "cluster", version=os.environ.get("BROKER") or None)
        try:
            cluster.start()
            given = replace(servers, amqp_url=cluster.amqp_url, private=None)
            with Stack.open(given, root / "services") as stack:
                if counts is not None:
                    stack.start(counts)
                yield cls(cluster, stack)
        finally:
            cluster.discard()

    async def queues(self) -> list[dict[str, Any]]:
        return await asyncio.to_thread(self.fetch_queues)

    def fetch_queues(self) -> list[dict[str, Any]]:
        """Return the durable queues of the first node that responds, or no queue."""
        for node in self.cluster.nodes:
            with suppress(OSError):
                return [queue for queue in manage(node, "GET", "queues") if queue["durable"]]
        return []

    def queue_report(self) -> str:
        """Return one line for each queue: name, messages, consumers, leader and members."""
        shown = (
            "name",
            "messages_ready",
            "messages_unacknowledged",
            "consumers",
            "leader",
            "online",
        )
        lines = (" ".join(str(queue.get(each)) for each in shown) for queue in self.fetch_queues())
        return "\n".join(lines)

    def _misses_a_member(self) -> bool:
        """Query each node, because the list of queues can be stale for idle queues."""
        try:
            for node in self.cluster.nodes:
                manage(node, "GET", "health/checks/node-is-quorum-critical")
        except OSError:  # the node is critical for a queue, or the node does not respond
            return True
        return False

    async def by_leadership(self) -> list[Broker]:
        """Return the nodes, with the leader of most queues first, when all queues are complete."""

        async def has_all_members() -> list[dict[str, Any]]:
            return [] if await asyncio.to_thread(self._misses_a_member) else await self.queues()

        led = Counter(
            queue["leader"]
            for queue in await until(has_all_members, within=MEMBERS_TIMEOUT, what="every member")
        )
        return sorted(self.cluster.nodes, key=lambda node: -led[node.name])

    @asynccontextmanager
    async def without(self, *nodes: Broker) -> AsyncIterator[None]:
        """Kill the nodes together with SIGKILL, and start them together after the block."""
        await asyncio.gather(*(asyncio.to_thread(node.kill) for node in nodes))
        try:
            yield
        finally:
            await asyncio.gather(*(asyncio.to_thread(node.start) for node in nodes))

    @asynccontextmanager
    async def split(self, node: Broker) -> AsyncIterator[None]:
        """Isolate a node from the other two for the block.

        The node pauses before RabbitMQ 4.3. Since 4.3, a minority continues and confirms nothing.
        """
        await asyncio.to_thread(self.cluster.isolate, node)
        try:
            await until(lambda: self._is_apart(node), what=f"a pause of {node.name}")
            yield
        finally:
            await asyncio.to_thread(self.cluster.heal, node)

    async def _is_apart(self, node: Broker) -> bool:
        if not MINORITY_CONTINUES:
            return await refuses(node)
        other = next(each for each in self.cluster.nodes if each is not node)
        seen = await asyncio.to_thread(manage, other, "GET", "nodes")
        return any(each["name"] == node.name and not each["running"] for each in seen)

    @asynccontextmanager
    async def one_sided(self, node: Broker, pool: str) -> AsyncIterator[str]:
        """Yield a pool whose only executor connects to that node only."""
        settings = {"HAREBELL_POOL": pool, "HAREBELL_AMQP_URL": node.amqp_url}
        member = await start(self.stack, ServiceKind.EXECUTOR, PAIRS.executors + 1, **settings)
        try:
            yield pool
        finally:
            self.stack.kill(member.name)

    async def until_ready(self) -> float:
        """Wait until every service is ready and return the seconds."""
        return await until_ready(self.stack, PAIRS, within=READY_TIMEOUT)


async def refuses(node: Broker) -> bool:
    try:
        _, writer = await asyncio.open_connection(LOOPBACK, node.ports.amqp)
    except OSError:
        return True
    writer.close()
    return False


@dataclass(frozen=True)
class Load:
    """One-shot schedules at even distances, of which a quarter has run when `put` returns."""

    path: str
    target: Target
    expected: set[str]

    @classmethod
    async def put(cls, tenant: Tenant, target: Target, path: str) -> "Load":
        hook = target.http(path, sleep=0.1)
        expected = await put_spread(tenant, hook, LOAD_SIZE, first=1, over=LOAD_DURATION)
        await until_called(target, path, LOAD_SIZE // 4)
        return cls(path, target, set(expected))

    @property
    def calls(self) -> list[Call]:
        return self.target.calls(self.path)

    @property
    def late(self) -> list[float]:
        """Return the lateness of each call in seconds, in ascending order."""
        return sorted(call.late for call in self.calls)

    @property
    def lateness(self) -> str:
        late = self.late
        held_up = sum(each > 1 for each in late)
        worst = f"worst {late[-1]:.3f} s, {held_up} of {len(late)} over 1 s"
        return f"p50 {late[len(late) // 2]:.3f} s, {worst}"
