"""Rows 11 to 13: nodes of a cluster of three killed, cut off from the others, most of them lost."""

from collections.abc import AsyncIterator
from typing import Final

from tests.chaos.environment import Member, Scene
from tests.chaos.faults.registry import fault

from harebell.dev.plan import ServiceKind
from harebell.storage.runs.recovery import LOST_AFTER
from harebell.ticker.recovery.rescuer import TICKET_CHECK_INTERVAL

ASIDE: Final[Member] = (ServiceKind.EXECUTOR, 2)  # knows the node that is cut off, and no other
PAUSE: Final = 10.0  # seconds that the loss of one node of three may hold up a run, beside work
assert LOST_AFTER + TICKET_CHECK_INTERVAL < PAUSE  # of what the dead leader had in hand, a sweep brings all


@fault(
    "11a",
    "one of three nodes killed: the one that leads fewest queues",
    clustered=True,
    pause=PAUSE,
)
async def follower(scene: Scene) -> AsyncIterator[None]:
    *_, node = await scene.cluster.by_leadership()
    async with scene.cluster.without(node):
        yield


@fault(
    "11b", "one of three nodes killed: the one that leads most queues", clustered=True, pause=PAUSE
)
async def leader(scene: Scene) -> AsyncIterator[None]:
    node, *_ = await scene.cluster.by_leadership()
    async with scene.cluster.without(node):
        yield


@fault("12a", "one of three nodes cut off", clustered=True, pause=PAUSE)
async def cut_off(scene: Scene) -> AsyncIterator[None]:
    node, *_ = await scene.cluster.by_leadership()
    async with scene.cluster.split(node):
        yield


@fault("12b", "one of three nodes cut off, and with it an executor", lapses=True, clustered=True)
async def cut_off_with_executor(scene: Scene) -> AsyncIterator[None]:
    """The other executor is on the side that goes on."""
    node, *_ = await scene.cluster.by_leadership()
    await scene.stop(ASIDE)
    await scene.start(ASIDE, {"HAREBELL_AMQP_URL": node.amqp_url})
    async with scene.cluster.split(node):
        yield
    await scene.stop(ASIDE)
    await scene.start(ASIDE)


@fault("13", "two of three nodes killed", clustered=True)
async def most_lost(scene: Scene) -> AsyncIterator[None]:
    *lost, _ = await scene.cluster.by_leadership()
    async with scene.cluster.without(*lost):
        yield
