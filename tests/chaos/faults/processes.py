"""Rows 1 to 8: services that are killed, frozen or told to stop."""

import asyncio
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Final

from tests.acceptance.stack import until
from tests.chaos.environment import MEMBERS, Member, Scene
from tests.chaos.faults.registry import fault

from harebell.dev.plan import ServiceKind

REACH: Final = 15.0  # seconds, its start among them, that a service gets to come to its failpoint
LAPSED: Final = 40.0  # seconds, until it ends leases that nobody holds any more
SHORT_LEASE: Final = {"HAREBELL_LEASE": "4s", "HAREBELL_LEASE_CRITICAL": "3s"}
ROLLED: Final = 4  # services that are told to stop in one wave
BEYOND: Final = 3.0  # seconds that an executor is frozen past its lease

STEPS: Final = {  # of each service, those that the load leads it to
    ServiceKind.INTAKE: ("before_publish", "after_publish"),
    ServiceKind.TICKER: (
        "before_commit",
        "after_commit",
        "change_before_commit",
        "change_after_commit",
    ),
    ServiceKind.DISPATCHER: ("before_publish", "after_publish"),
    ServiceKind.EXECUTOR: (
        *("before_claim", "before_effect", "after_effect", "before_complete"),
        *("before_failure_commit", "before_overlap_commit"),
    ),
}


@asynccontextmanager
async def killed(scene: Scene, *members: Member) -> AsyncIterator[None]:
    for member in members:
        await scene.kill(member)
    yield
    await scene.start_all(members)


@asynccontextmanager
async def doomed(
    scene: Scene, member: Member, failpoint: str, within: float = REACH
) -> AsyncIterator[None]:
    """It dies where `failpoint` says; if it does not get there in time, it is killed in the end."""
    await scene.kill(member)
    await scene.start(member, {"HAREBELL_FAILPOINT": f"{failpoint}:kill"}, ready=False)

    await _until_seen(scene, lambda: not scene.is_alive(member), within)
    yield
    await scene.kill(member)
    await scene.start(member)


@asynccontextmanager
async def frozen(scene: Scene, *members: Member) -> AsyncIterator[None]:
    for member in members:
        scene.send(member, signal.SIGSTOP)
    yield
    for member in members:
        scene.send(member, signal.SIGCONT)


@fault("1a", "kill -9 intake")
async def intake(scene: Scene) -> AsyncIterator[None]:
    async with killed(scene, (ServiceKind.INTAKE, 1)):
        yield


@fault("2a", "kill -9 one ticker")
async def ticker(scene: Scene) -> AsyncIterator[None]:
    async with killed(scene, scene.some(ServiceKind.TICKER)):
        yield


def _failpoint(row: str, name: str, kind: ServiceKind, *, lapses: bool = False) -> None:
    @fault(row, f"kill -9 at {name}", lapses=lapses)
    async def strike(scene: Scene) -> AsyncIterator[None]:
        """The other of its kind is away, so that this one comes to its end."""
        victim, *others = scene.all_of(kind)
        for other in others:
            await scene.kill(other)
        async with doomed(scene, victim, name):
            yield
        await scene.start_all(others)


_failpoint("1b", "intake.before_publish", ServiceKind.INTAKE)
_failpoint("1c", "intake.after_publish", ServiceKind.INTAKE)
_failpoint("2b", "ticker.before_commit", ServiceKind.TICKER)
_failpoint("2c", "ticker.after_commit", ServiceKind.TICKER)
_failpoint("2d", "ticker.change_before_commit", ServiceKind.TICKER)
_failpoint("2e", "ticker.change_after_commit", ServiceKind.TICKER)


@fault("3", "kill -9 both tickers")
async def tickers(scene: Scene) -> AsyncIterator[None]:
    async with killed(scene, *scene.all_of(ServiceKind.TICKER)):
        yield


@fault("4a", "SIGSTOP one ticker")
async def frozen_ticker(scene: Scene) -> AsyncIterator[None]:
    async with frozen(scene, scene.some(ServiceKind.TICKER)):
        yield


@fault("4b", "SIGSTOP a ticker at ticker.before_commit")
async def stopped_ticker(scene: Scene) -> AsyncIterator[None]:
    """While it holds its locks, the other goes on."""
    victim = scene.some(ServiceKind.TICKER)
    await scene.kill(victim)
    await scene.start(victim, {"HAREBELL_FAILPOINT": "ticker.before_commit:stop"}, ready=False)
    yield
    for _ in range(3):  # it stops again at its next commit
        scene.send(victim, signal.SIGCONT)
        await asyncio.sleep(0.3)
    await scene.kill(victim)
    await scene.start(victim, ready=False)


@fault("4c", "SIGSTOP of any service")
async def frozen_service(scene: Scene) -> AsyncIterator[None]:
    async with frozen(scene, scene.some()):
        yield


@fault("4d", "SIGSTOP at any failpoint of any service", lapses=True)
async def frozen_at_a_step(scene: Scene) -> AsyncIterator[None]:
    async with _armed(scene, "stop") as victim:
        await _until_seen(scene, lambda: scene.is_frozen(victim))
        yield
        scene.send(victim, signal.SIGCONT)
        await scene.kill(victim)  # it stops again at the next such step


@asynccontextmanager
async def _armed(scene: Scene, action: str) -> AsyncIterator[Member]:
    """Any service with any step of its own; others of its kind are away until it is over."""
    kind = scene.dice.choice(list(STEPS))
    step = f"{kind}.{scene.dice.choice(STEPS[kind])}"
    victim, *others = scene.all_of(kind)
    for member in (victim, *others):
        await scene.stop(member)
    await scene.start(victim, {"HAREBELL_FAILPOINT": f"{step}:{action}"}, ready=False)
    yield victim
    await scene.start_all([victim, *others])


async def _until_seen(scene: Scene, is_so: Callable[[], bool], within: float = REACH) -> None:
    """Or until that takes too long, which is noted."""

    async def is_seen() -> bool:
        return is_so()

    with suppress(AssertionError):
        await until(is_seen, within=within)
    scene.notes["reached"] = float(is_so())


@fault("5a", "kill -9 one dispatcher")
async def dispatcher(scene: Scene) -> AsyncIterator[None]:
    async with killed(scene, scene.some(ServiceKind.DISPATCHER)):
        yield


@fault("5b", "kill -9 both dispatchers")
async def dispatchers(scene: Scene) -> AsyncIterator[None]:
    async with killed(scene, *scene.all_of(ServiceKind.DISPATCHER)):
        yield


_failpoint("5c", "dispatcher.before_publish", ServiceKind.DISPATCHER)
_failpoint("5d", "dispatcher.after_publish", ServiceKind.DISPATCHER)


@fault("6", "kill -9 one executor", lapses=True)
async def executor(scene: Scene) -> AsyncIterator[None]:
    async with killed(scene, scene.some(ServiceKind.EXECUTOR)):
        yield


_failpoint("6a", "executor.before_claim", ServiceKind.EXECUTOR, lapses=True)
_failpoint("6b", "executor.before_effect", ServiceKind.EXECUTOR, lapses=True)
_failpoint("6c", "executor.after_effect", ServiceKind.EXECUTOR, lapses=True)
_failpoint("6d", "executor.before_complete", ServiceKind.EXECUTOR, lapses=True)
_failpoint("6e", "executor.before_failure_commit", ServiceKind.EXECUTOR, lapses=True)
_failpoint("6f", "executor.before_overlap_commit", ServiceKind.EXECUTOR, lapses=True)


@fault("2f", "kill -9 at ticker.recovery_before_commit, when an executor has died", lapses=True)
async def sweeping_ticker(scene: Scene) -> AsyncIterator[None]:
    """Whose leases it ends as soon as it trusts its clock."""
    victim, *others = scene.all_of(ServiceKind.TICKER)
    executor = scene.some(ServiceKind.EXECUTOR)
    for other in (*others, executor):
        await scene.kill(other)
    async with doomed(scene, victim, "ticker.recovery_before_commit", within=LAPSED):
        yield
    await scene.start_all([*others, executor])


@fault("7", "SIGSTOP one executor past its lease", lapses=True)
async def zombie(scene: Scene) -> AsyncIterator[None]:
    """With a short lease, so that it lapses in the time of the outage."""
    victim = scene.some(ServiceKind.EXECUTOR)
    await scene.stop(victim)
    await scene.start(victim, SHORT_LEASE)
    await asyncio.sleep(scene.dice.uniform(1, 2))
    async with frozen(scene, victim):
        yield
        await asyncio.sleep(BEYOND)


@fault("8", "SIGTERM of some services, one after the other")
async def rolling(scene: Scene) -> AsyncIterator[None]:
    for member in scene.dice.sample(MEMBERS, ROLLED):
        await scene.stop(member)
        await scene.start(member)
    yield


@fault("8a", "SIGTERM at any failpoint of any service")
async def told_at_a_step(scene: Scene) -> AsyncIterator[None]:
    async with _armed(scene, "term") as victim:
        await _until_seen(scene, lambda: not scene.is_alive(victim))
        yield
        await scene.stop(victim)  # if it never got there
