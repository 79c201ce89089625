"""Rows 11 to 13: nodes of a cluster of three are killed or isolated."""

from collections.abc import AsyncIterator
from typing import Final

from tests.chaos.environment import Environment, Member
from tests.chaos.faults.registry import fault

from harebell.dev.plan import ServiceKind
from harebell.storage.runs.recovery import LOST_AFTER
from harebell.ticker.recovery.rescuer import TICKET_CHECK_INTERVAL

ISOLATED: Final[Member] = (ServiceKind.EXECUTOR, 2)  # knows only the isolated node
# Seconds that the loss of one node of three may delay a run, in addition to the waiting work.
MAX_DELAY: Final = 10.0
# One recovery publishes all tickets that the dead leader had not forwarded.
assert LOST_AFTER + TICKET_CHECK_INTERVAL < MAX_DELAY


@fault(
    "11a",
    "one of three nodes killed: the leader of the fewest queues",
    needs_cluster=True,
    max_delay=MAX_DELAY,
)
async def follower(environment: Environment) -> AsyncIterator[None]:
    *_, node = await environment.cluster.by_leadership()
    async with environment.cluster.without(node):
        yield


@fault(
    "11b",
    "one of three nodes killed: the leader of the most queues",
    needs_cluster=True,
    max_delay=MAX_DELAY,
)
async def leader(environment: Environment) -> AsyncIterator[None]:
    node, *_ = await environment.cluster.by_leadership()
    async with environment.cluster.without(node):
        yield


@fault("12a", "one of three nodes isolated", needs_cluster=True, max_delay=MAX_DELAY)
async def isolated(environment: Environment) -> AsyncIterator[None]:
    node, *_ = await environment.cluster.by_leadership()
    async with environment.cluster.split(node):
        yield


@fault(
    "12b",
    "one of three nodes isolated together with an executor",
    can_expire_leases=True,
    needs_cluster=True,
)
async def isolated_with_executor(environment: Environment) -> AsyncIterator[None]:
    """Isolate one executor. The other executor reaches the majority of the nodes."""
    node, *_ = await environment.cluster.by_leadership()
    await environment.stop(ISOLATED)
    await environment.start(ISOLATED, {"HAREBELL_AMQP_URL": node.amqp_url})
    async with environment.cluster.split(node):
        yield
    await environment.stop(ISOLATED)
    await environment.start(ISOLATED)


@fault("13", "two of three nodes killed", needs_cluster=True)
async def majority_lost(environment: Environment) -> AsyncIterator[None]:
    *lost, _ = await environment.cluster.by_leadership()
    async with environment.cluster.without(*lost):
        yield
