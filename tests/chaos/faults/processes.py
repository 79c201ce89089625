"""Rows 1 to 8: services that are killed, frozen or stopped."""

import asyncio
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Final

from tests.chaos.environment import MEMBERS, Environment, Member
from tests.chaos.faults.registry import fault
from tests.rig.polling import until

from harebell.dev.plan import ServiceKind

REACH_TIMEOUT: Final = 15.0  # seconds for the start of a service and its way to the failpoint
LEASE_RECOVERY: Final = 40.0  # seconds until the ticker ends the leases of a dead executor
SHORT_LEASE: Final = {"HAREBELL_LEASE": "4s", "HAREBELL_LEASE_CRITICAL": "3s"}
RESTARTED: Final = 4  # services that one round stops one after the other
AFTER_LEASE: Final = 3.0  # seconds that an executor is frozen after the end of its lease

STEPS: Final = {  # the failpoints of each service that the load reaches
    ServiceKind.INTAKE: ("before_publish", "after_publish"),
    ServiceKind.TICKER: (
        "before_commit",
        "after_commit",
        "change_before_commit",
        "change_after_commit",
    ),
    ServiceKind.DISPATCHER: ("before_publish", "after_publish"),
    ServiceKind.EXECUTOR: (
        "before_claim",
        "before_effect",
        "after_effect",
        "before_complete",
        "before_failure_commit",
        "before_overlap_commit",
    ),
}


@asynccontextmanager
async def killed(environment: Environment, *members: Member) -> AsyncIterator[None]:
    for member in members:
        await environment.kill(member)
    yield
    await environment.start_all(members)


@asynccontextmanager
async def killed_at(
    environment: Environment, member: Member, failpoint: str, within: float = REACH_TIMEOUT
) -> AsyncIterator[None]:
    """Kill a service at the failpoint. Kill it at the end if it did not reach the failpoint."""
    await environment.kill(member)
    await environment.start(member, {"HAREBELL_FAILPOINT": f"{failpoint}:kill"}, ready=False)

    await _until_reached(environment, lambda: not environment.is_alive(member), within)
    yield
    await environment.kill(member)
    await environment.start(member)


@asynccontextmanager
async def frozen(environment: Environment, *members: Member) -> AsyncIterator[None]:
    for member in members:
        environment.send(member, signal.SIGSTOP)
    yield
    for member in members:
        environment.send(member, signal.SIGCONT)


@fault("1a", "kill -9 intake")
async def intake(environment: Environment) -> AsyncIterator[None]:
    async with killed(environment, (ServiceKind.INTAKE, 1)):
        yield


@fault("2a", "kill -9 one ticker")
async def ticker(environment: Environment) -> AsyncIterator[None]:
    async with killed(environment, environment.choose_member(ServiceKind.TICKER)):
        yield


def _failpoint(row: str, name: str, kind: ServiceKind, *, can_expire_leases: bool = False) -> None:
    @fault(row, f"kill -9 at {name}", can_expire_leases=can_expire_leases)
    async def inject(environment: Environment) -> AsyncIterator[None]:
        """Kill the other instances of the kind, so that this one reaches the failpoint."""
        victim, *others = environment.members_of(kind)
        for other in others:
            await environment.kill(other)
        async with killed_at(environment, victim, name):
            yield
        await environment.start_all(others)


_failpoint("1b", "intake.before_publish", ServiceKind.INTAKE)
_failpoint("1c", "intake.after_publish", ServiceKind.INTAKE)
_failpoint("2b", "ticker.before_commit", ServiceKind.TICKER)
_failpoint("2c", "ticker.after_commit", ServiceKind.TICKER)
_failpoint("2d", "ticker.change_before_commit", ServiceKind.TICKER)
_failpoint("2e", "ticker.change_after_commit", ServiceKind.TICKER)


@fault("3", "kill -9 both tickers")
async def tickers(environment: Environment) -> AsyncIterator[None]:
    async with killed(environment, *environment.members_of(ServiceKind.TICKER)):
        yield


@fault("4a", "SIGSTOP one ticker")
async def frozen_ticker(environment: Environment) -> AsyncIterator[None]:
    async with frozen(environment, environment.choose_member(ServiceKind.TICKER)):
        yield


@fault("4b", "SIGSTOP a ticker at ticker.before_commit")
async def ticker_frozen_at_commit(environment: Environment) -> AsyncIterator[None]:
    """Freeze a ticker with its locks, so that the other ticker has to continue without them."""
    victim = environment.choose_member(ServiceKind.TICKER)
    await environment.kill(victim)
    failpoint = {"HAREBELL_FAILPOINT": "ticker.before_commit:stop"}
    await environment.start(victim, failpoint, ready=False)
    yield
    for _ in range(3):  # the ticker stops again at its next commit
        environment.send(victim, signal.SIGCONT)
        await asyncio.sleep(0.3)
    await environment.kill(victim)
    await environment.start(victim, ready=False)


@fault("4c", "SIGSTOP of any service")
async def frozen_service(environment: Environment) -> AsyncIterator[None]:
    async with frozen(environment, environment.choose_member()):
        yield


@fault("4d", "SIGSTOP at any failpoint of any service", can_expire_leases=True)
async def frozen_at_a_step(environment: Environment) -> AsyncIterator[None]:
    async with _armed(environment, "stop") as victim:
        await _until_reached(environment, lambda: environment.is_frozen(victim))
        yield
        environment.send(victim, signal.SIGCONT)
        await environment.kill(victim)  # the service stops again at the next such step


@asynccontextmanager
async def _armed(environment: Environment, action: str) -> AsyncIterator[Member]:
    """Arm a random failpoint of a random service, without the other instances of its kind."""
    kind = environment.random.choice(list(STEPS))
    step = f"{kind}.{environment.random.choice(STEPS[kind])}"
    victim, *others = environment.members_of(kind)
    for member in (victim, *others):
        await environment.stop(member)
    await environment.start(victim, {"HAREBELL_FAILPOINT": f"{step}:{action}"}, ready=False)
    yield victim
    await environment.start_all([victim, *others])


async def _until_reached(
    environment: Environment, is_reached: Callable[[], bool], within: float = REACH_TIMEOUT
) -> None:
    """Wait for the effect of a failpoint, and record in the measurements whether it occurred."""

    async def condition() -> bool:
        return is_reached()

    with suppress(AssertionError):
        await until(condition, within=within)
    environment.measurements["reached"] = float(is_reached())


@fault("5a", "kill -9 one dispatcher")
async def dispatcher(environment: Environment) -> AsyncIterator[None]:
    async with killed(environment, environment.choose_member(ServiceKind.DISPATCHER)):
        yield


@fault("5b", "kill -9 both dispatchers")
async def dispatchers(environment: Environment) -> AsyncIterator[None]:
    async with killed(environment, *environment.members_of(ServiceKind.DISPATCHER)):
        yield


_failpoint("5c", "dispatcher.before_publish", ServiceKind.DISPATCHER)
_failpoint("5d", "dispatcher.after_publish", ServiceKind.DISPATCHER)


@fault("6", "kill -9 one executor", can_expire_leases=True)
async def executor(environment: Environment) -> AsyncIterator[None]:
    async with killed(environment, environment.choose_member(ServiceKind.EXECUTOR)):
        yield


_failpoint("6a", "executor.before_claim", ServiceKind.EXECUTOR, can_expire_leases=True)
_failpoint("6b", "executor.before_effect", ServiceKind.EXECUTOR, can_expire_leases=True)
_failpoint("6c", "executor.after_effect", ServiceKind.EXECUTOR, can_expire_leases=True)
_failpoint("6d", "executor.before_complete", ServiceKind.EXECUTOR, can_expire_leases=True)
_failpoint("6e", "executor.before_failure_commit", ServiceKind.EXECUTOR, can_expire_leases=True)
_failpoint("6f", "executor.before_overlap_commit", ServiceKind.EXECUTOR, can_expire_leases=True)


@fault(
    "2f",
    "kill -9 at ticker.recovery_before_commit, after the death of an executor",
    can_expire_leases=True,
)
async def recovering_ticker(environment: Environment) -> AsyncIterator[None]:
    """Kill a ticker that ends the leases of a dead executor, as soon as it trusts its clock."""
    victim, *others = environment.members_of(ServiceKind.TICKER)
    dead_executor = environment.choose_member(ServiceKind.EXECUTOR)
    for other in (*others, dead_executor):
        await environment.kill(other)
    failpoint = "ticker.recovery_before_commit"
    async with killed_at(environment, victim, failpoint, within=LEASE_RECOVERY):
        yield
    await environment.start_all([*others, dead_executor])


@fault("7", "SIGSTOP one executor past its lease", can_expire_leases=True)
async def frozen_past_its_lease(environment: Environment) -> AsyncIterator[None]:
    """Freeze an executor with a short lease, which ends during the outage."""
    victim = environment.choose_member(ServiceKind.EXECUTOR)
    await environment.stop(victim)
    await environment.start(victim, SHORT_LEASE)
    await asyncio.sleep(environment.random.uniform(1, 2))
    async with frozen(environment, victim):
        yield
        await asyncio.sleep(AFTER_LEASE)


@fault("8", "SIGTERM of some services, one after the other")
async def rolling_restart(environment: Environment) -> AsyncIterator[None]:
    for member in environment.random.sample(MEMBERS, RESTARTED):
        await environment.stop(member)
        await environment.start(member)
    yield


@fault("8a", "SIGTERM at any failpoint of any service")
async def stopped_at_a_step(environment: Environment) -> AsyncIterator[None]:
    async with _armed(environment, "term") as victim:
        await _until_reached(environment, lambda: not environment.is_alive(victim))
        yield
        await environment.stop(victim)  # the service may not have reached the step
