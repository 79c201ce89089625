"""A cluster under a stack of its own, for tests that break it: who leads, who is left, the load."""

import asyncio
import os
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tests.acceptance.faults import put_spread, start, until_called, until_ready
from tests.acceptance.record import Call, Target
from tests.acceptance.stack import Stack, Tenant, until
from tests.rig.cluster import Cluster
from tests.rig.servers import Servers, manage

from harebell.dev.plan import Counts, ServiceKind
from harebell.dev.ports import LOOPBACK
from harebell.dev.rabbitmq import Broker

PAIRS = Counts(tickers=2, dispatchers=2, executors=2)
GOES_ON = (os.environ.get("BROKER") or "").startswith("4.3")  # as a minority of a cluster
LOAD = 160
OVER = 8.0  # seconds
READY = 30.0  # seconds from an open port until every service consumes again
BACKLOG = 30.0  # seconds from then until nothing is owed


@dataclass(frozen=True)
class Clustered:
    """A stack whose services know every node."""

    cluster: Cluster
    stack: Stack

    @classmethod
    @contextmanager
    def open(
        cls, servers: Servers, root: Path, counts: Counts | None = PAIRS
    ) -> Iterator["Clustered"]:
        """The database is that of `servers`; their broker is not used. None: nothing runs yet."""
        cluster = Cluster(root / "cluster", release=os.environ.get("BROKER") or None)
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
        return await asyncio.to_thread(self.look)

    def look(self) -> list[dict[str, Any]]:
        """The durable ones, as the first node has them that answers; none when none does."""
        for node in self.cluster.nodes:
            with suppress(OSError):
                return [queue for queue in manage(node, "GET", "queues") if queue["durable"]]
        return []

    def told_queues(self) -> str:
        """A line each: its name, what is ready and what unacknowledged, consumers, members."""
        shown = (
            "name",
            "messages_ready",
            "messages_unacknowledged",
            "consumers",
            "leader",
            "online",
        )
        lines = (" ".join(str(queue.get(each)) for each in shown) for queue in self.look())
        return "\n".join(lines)

    def _misses_a_member(self) -> bool:
        """Asked of each node: what a list of queues says of idle ones may be of long ago."""
        try:
            for node in self.cluster.nodes:
                manage(node, "GET", "health/checks/node-is-quorum-critical")
        except OSError:  # some queue would be lost with this node, or it does not answer
            return True
        return False

    async def by_leadership(self) -> list[Broker]:
        """The nodes; the one that leads most queues comes first. All queues have all members."""

        async def whole() -> list[dict[str, Any]]:
            return [] if await asyncio.to_thread(self._misses_a_member) else await self.queues()

        led = Counter(queue["leader"] for queue in await until(whole, what="every member"))
        return sorted(self.cluster.nodes, key=lambda node: -led[node.name])

    @asynccontextmanager
    async def without(self, *nodes: Broker) -> AsyncIterator[None]:
        """They are killed (-9) together, and started together in the end."""
        await asyncio.gather(*(asyncio.to_thread(node.kill) for node in nodes))
        try:
            yield
        finally:
            await asyncio.gather(*(asyncio.to_thread(node.start) for node in nodes))

    @asynccontextmanager
    async def split(self, node: Broker) -> AsyncIterator[None]:
        """A node is cut off from the other two, and has paused, or is missed by them.

        From RabbitMQ 4.3 on a minority goes on, and confirms nothing.
        """
        await asyncio.to_thread(self.cluster.isolate, node)
        try:
            await until(lambda: self._is_apart(node), what=f"a pause of {node.name}")
            yield
        finally:
            await asyncio.to_thread(self.cluster.heal, node)

    async def _is_apart(self, node: Broker) -> bool:
        if not GOES_ON:
            return await refuses(node)
        other = next(each for each in self.cluster.nodes if each is not node)
        seen = await asyncio.to_thread(manage, other, "GET", "nodes")
        return any(each["name"] == node.name and not each["running"] for each in seen)

    @asynccontextmanager
    async def one_sided(self, node: Broker, pool: str) -> AsyncIterator[str]:
        """A pool whose only executor knows that node alone."""
        its = {"HAREBELL_POOL": pool, "HAREBELL_AMQP_URL": node.amqp_url}
        member = await start(self.stack, ServiceKind.EXECUTOR, PAIRS.executors + 1, **its)
        try:
            yield pool
        finally:
            self.stack.kill(member.name)

    async def until_ready(self) -> float:
        """Seconds."""
        return await until_ready(self.stack, PAIRS, within=READY)


async def refuses(node: Broker) -> bool:
    try:
        _, writer = await asyncio.open_connection(LOOPBACK, node.ports.amqp)
    except OSError:
        return True
    writer.close()
    return False


@dataclass(frozen=True)
class Load:
    """One-shots at even distances, some of which have run when it is there."""

    path: str
    target: Target
    owed: set[str]

    @classmethod
    async def put(cls, tenant: Tenant, target: Target, path: str) -> "Load":
        hook = target.http(path, sleep=0.1)
        owed = await put_spread(tenant, hook, LOAD, first=1, over=OVER)
        await until_called(target, path, LOAD // 4)
        return cls(path, target, set(owed))

    @property
    def calls(self) -> list[Call]:
        return self.target.calls(self.path)

    @property
    def late(self) -> list[float]:
        """Seconds, the least first."""
        return sorted(call.late for call in self.calls)

    @property
    def lateness(self) -> str:
        late = self.late
        held_up = sum(each > 1 for each in late)
        worst = f"worst {late[-1]:.3f} s, {held_up} of {len(late)} over 1 s"
        return f"p50 {late[len(late) // 2]:.3f} s, {worst}"
