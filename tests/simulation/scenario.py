"""One seed, one world: services, their faults, users; then calm, in which all must come to rest."""

import asyncio
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any, Final

from tests.fakes.ledger.dead_letters import DEAD_LETTERS
from tests.fakes.ledger.runs import RUNS, Run
from tests.fakes.ledger.schedules import STATES
from tests.fakes.ledger.store import Store
from tests.simulation import services
from tests.simulation.bus import Broker
from tests.simulation.dlq_user import Clerk
from tests.simulation.fault_rates import Odds
from tests.simulation.final_checks import balance
from tests.simulation.invariants import Violation, Witness
from tests.simulation.loop import PROCESS, VirtualLoop
from tests.simulation.processes import Crew, Seat
from tests.simulation.users import Users

from harebell.contract.ids import RunKey, dead_run_id
from harebell.domain.run_states import OPEN, RunState
from harebell.executor.tasks import Permanent, TaskContext

EPOCH: Final = datetime(2026, 11, 20, 9, tzinfo=UTC)
FAULTY: Final = 20.0  # seconds in which faults happen
CALM: Final = 1800.0  # seconds at most until all is at rest: a lost row's waits double to 600
REMEMBERED: Final = 80  # last steps that a violation is told with


@dataclass
class World:
    seed: int
    loop: VirtualLoop
    verbose: bool = False
    steps: deque[str] = field(default_factory=lambda: deque(maxlen=REMEMBERED))
    became: Counter[str] = field(default_factory=Counter)  # runs, what
    happened: Counter[str] = field(default_factory=Counter)
    broken: str | None = None
    living: "asyncio.Task[None]" = field(init=False)

    def __post_init__(self) -> None:
        self.dice = dice = Random(self.seed)  # noqa: S311  # chance that can be repeated
        self.odds = Odds.drawn(dice, self.happened)
        self.store = Store(self.now, lambda tx: self._checked(self.witness.committing, tx))
        self.witness = Witness(self.store, became=self.became)
        self.broker = Broker(self.loop, self.odds, self.witness.published)
        self.users = Users(dice, self.broker, self.witness, self.now, self.trace)
        self.clerk = Clerk(dice, self.store, self.users)
        ports = (self.store, self.broker, self.trace, self.fail)
        self.crew = Crew(self.loop, self.odds, *ports, _seats(self))

    def now(self) -> datetime:
        return EPOCH + timedelta(seconds=self.loop.time())

    def trace(self, text: str) -> None:
        line = f"{self.loop.time():9.3f} {text}"
        self.steps.append(line)
        if self.verbose:
            print(line)  # noqa: T201  # asked for

    def fail(self, text: str) -> None:
        """The first violation ends the world."""
        if self.broken is None:
            self.broken = text
            self.trace(f"VIOLATION: {text}")
            self.living.cancel()

    def _checked(self, check: Callable[..., Any], *args: Any) -> Any:
        """A violation is noted here: a service would take it for a fault of its own."""
        try:
            return check(*args)
        except Violation as violation:
            self.fail(str(violation))

    async def live(self) -> None:
        self.living = asyncio.create_task(self._live())
        await asyncio.wait([self.living], timeout=FAULTY + CALM)
        if not self.living.done():
            self.fail(f"not at rest: {self._restless()[:3]}")
        elif not self.living.cancelled():
            self.living.result()

    async def _live(self) -> None:
        for seat in self.crew.seats:
            self.crew.start(seat)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.users.live(FAULTY))
            until_calm = [self.crew.suffer(), self.clerk.live()]
            tasks.create_task(self._calm_down([tasks.create_task(each) for each in until_calm]))
        await self.users.resume_all()
        while self._restless() or self._held():
            await asyncio.sleep(1)
            await self.clerk.clear()
            for run in self._held():
                await self.users.resolve(run)
        self.happened["commands"] = self.users.sent
        self.happened["replays"] = len(self.witness.replayed)
        self._checked(balance, self.store, self.users, self.clerk.told)

    async def _calm_down(self, ending: "list[asyncio.Task[None]]") -> None:
        await asyncio.sleep(FAULTY)
        for each in ending:
            each.cancel()
        self.odds.stop()
        self.trace("faults have stopped")

    async def effect(self, _: dict[str, Any], context: TaskContext) -> None:
        """What a run does at its target: most succeed soon; some fail, some take long."""
        key, token = RunKey.parse(context.run_id), context.fencing_token
        self.trace(f"{key} starts, attempt {context.attempt}, token {token}")
        claim = self._checked(self.witness.started, PROCESS.get(), key, token)
        is_long = self.dice.random() < 0.1
        await asyncio.sleep(self.dice.uniform(0, 18 if is_long else 2))
        fate = self.dice.random()
        if fate < 0.05:
            raise Permanent("it would fail again")
        if fate < 0.25:
            raise RuntimeError("it failed")
        if claim is not None:
            claim.succeeded = True

    # what must be in the end

    @property
    def _runs(self) -> list[Run]:
        return list(self.store.tables[RUNS].values())

    def _restless(self) -> list[str]:
        states = self.store.tables[STATES].values()
        waiting = [
            f"{each.key} {each.state} {each.reason}" for each in self._runs if _is_open(each)
        ]
        owing = [f"{s['schedule_id']} owes {s['next_at']}" for s in states if s["next_at"]]
        return (
            waiting
            + owing
            + [f"{run.key} has no letter" for run in self._runs if self._is_unkept(run)]
        )

    def _is_unkept(self, run: Run) -> bool:
        letter = dead_run_id(str(run.key), run.replay_number)
        return run.state is RunState.DEAD and letter not in self.store.tables[DEAD_LETTERS]

    def _held(self) -> list[RunKey]:
        return [run.key for run in self._runs if run.state is RunState.UNRESOLVED]


def _seats(world: World) -> list[Seat]:
    executor = services.executor(world.effect)
    return [
        Seat("intake", services.intake),
        Seat("ticker-1", services.ticker),
        Seat("ticker-2", services.ticker),
        Seat("dispatcher", services.dispatcher),
        Seat("executor-1", executor),
        Seat("executor-2", executor),
        Seat("desk", services.desk),
    ]


def _is_open(run: Run) -> bool:
    return run.state in OPEN
