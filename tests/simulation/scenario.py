"""One scenario of one seed: services, users and faults, and then the end of all work."""

import asyncio
from collections import Counter, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any, Final

from tests.fakes.ledger.dead_letters import DEAD_LETTERS
from tests.fakes.ledger.runs import RUNS, Run
from tests.fakes.ledger.schedules import STATES
from tests.fakes.ledger.store import Store
from tests.simulation import services
from tests.simulation.bus import FakeBroker
from tests.simulation.dlq_user import DlqUser
from tests.simulation.fault_rates import FaultRates
from tests.simulation.final_checks import check_end
from tests.simulation.invariants import InvariantChecker, Violation
from tests.simulation.loop import PROCESS, VirtualLoop
from tests.simulation.processes import SupervisedService, Supervisor
from tests.simulation.users import Users

from harebell.contract.ids import RunKey, dead_run_id
from harebell.domain.run_states import OPEN, RunState
from harebell.executor.tasks import Permanent, TaskContext

EPOCH: Final = datetime(2026, 11, 20, 9, tzinfo=UTC)
FAULT_SPAN: Final = 20.0  # seconds with faults
# Seconds after the faults until all work has ended. The waits of a lost ticket double up to 600 s.
END_TIMEOUT: Final = 1800.0
MAX_TRACED_STEPS: Final = 80


@dataclass(kw_only=True)
class Scenario:
    """A scenario. `violation` is the text of its first violation."""

    seed: int
    loop: VirtualLoop
    is_verbose: bool = False
    fixed_rates: Mapping[str, float] = field(default_factory=dict)  # of faults
    steps: deque[str] = field(default_factory=lambda: deque(maxlen=MAX_TRACED_STEPS))
    entered_states: Counter[str] = field(default_factory=Counter)  # of runs
    counts: Counter[str] = field(default_factory=Counter)  # of events
    violation: str | None = None
    running: "asyncio.Task[None]" = field(init=False)

    def __post_init__(self) -> None:
        self.random = random = Random(self.seed)  # noqa: S311  # for a repetition, not for a secret
        self.faults = FaultRates.generate(random, self.counts, self.fixed_rates)
        self.store = Store(self.now, lambda tx: self._catch(self.invariants.check_commit, tx))
        self.invariants = InvariantChecker(store=self.store, entered_states=self.entered_states)
        self.broker = FakeBroker(self.loop, self.faults, self.invariants.check_publish)
        self.users = Users(
            random=random,
            broker=self.broker,
            invariants=self.invariants,
            now=self.now,
            trace=self.trace,
        )
        self.dlq_user = DlqUser(random=random, store=self.store, users=self.users)
        self.supervisor = Supervisor(
            loop=self.loop,
            faults=self.faults,
            store=self.store,
            broker=self.broker,
            trace=self.trace,
            fail=self.fail,
            services=_services(self),
        )

    def now(self) -> datetime:
        return EPOCH + timedelta(seconds=self.loop.time())

    def trace(self, text: str) -> None:
        line = f"{self.loop.time():9.3f} {text}"
        self.steps.append(line)
        if self.is_verbose:
            print(line)  # noqa: T201  # the output of --verbose

    def fail(self, text: str) -> None:
        """End the scenario at its first violation."""
        if self.violation is None:
            self.violation = text
            self.trace(f"VIOLATION: {text}")
            self.running.cancel()

    def _catch(self, check: Callable[..., Any], *args: Any) -> Any:
        """Record a violation here, because a service would treat it as its own error."""
        try:
            return check(*args)
        except Violation as violation:
            self.fail(str(violation))

    async def run(self) -> None:
        self.running = asyncio.create_task(self._run())
        await asyncio.wait([self.running], timeout=FAULT_SPAN + END_TIMEOUT)
        if not self.running.done():
            self.fail(f"the work did not end: {self._remaining_work()[:3]}")
        elif not self.running.cancelled():
            self.running.result()

    async def _run(self) -> None:
        for service in self.supervisor.services:
            self.supervisor.start(service)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.users.run(FAULT_SPAN))
            faulty = [self.supervisor.inject_faults(), self.dlq_user.run()]
            tasks.create_task(self._stop_faults([tasks.create_task(each) for each in faulty]))
        await self.users.resume_all()
        while self._remaining_work() or self._unresolved():
            await asyncio.sleep(1)
            await self.dlq_user.replay_open()
            for run in self._unresolved():
                await self.users.resolve(run)
        self.counts["commands"] = self.users.sent
        self.counts["replays"] = len(self.invariants.replayed)
        self._catch(check_end, self.store, self.users, self.dlq_user.results)

    async def _stop_faults(self, tasks: "list[asyncio.Task[None]]") -> None:
        await asyncio.sleep(FAULT_SPAN)
        for task in tasks:
            task.cancel()
        self.faults.stop()
        self.trace("faults have stopped")

    async def effect(self, _: dict[str, Any], context: TaskContext) -> None:
        """Run as the target of every run. Most calls succeed soon, some fail or take long."""
        key, token = RunKey.parse(context.run_id), context.fencing_token
        self.trace(f"{key} starts, attempt {context.attempt}, token {token}")
        claim = self._catch(self.invariants.check_start, PROCESS.get(), key, token)
        rates = self.faults.effect_rates
        if self.faults.occurs("frozen_attempt"):
            self.supervisor.freeze(PROCESS.get())
        is_long = self.random.random() < rates["long"]
        await asyncio.sleep(self.random.uniform(0, 18 if is_long else 2))
        outcome = self.random.random()
        if outcome < rates["permanent"]:
            raise Permanent("A retry would also fail.")
        if outcome < rates["permanent"] + rates["failed"]:
            raise RuntimeError("The effect failed.")
        if claim is not None:
            claim.has_succeeded = True

    # The work that must end

    @property
    def _runs(self) -> list[Run]:
        return list(self.store.tables[RUNS].values())

    def _remaining_work(self) -> list[str]:
        states = self.store.tables[STATES].values()
        open_runs = [
            f"{run.key} {run.state} {run.reason}" for run in self._runs if run.state in OPEN
        ]
        schedules = [
            f"{state['schedule_id']} will stage {state['next_at']}"
            for state in states
            if state["next_at"]
        ]
        dead_runs = [
            f"{run.key} has no dead letter" for run in self._runs if self._has_no_dead_letter(run)
        ]
        return open_runs + schedules + dead_runs

    def _has_no_dead_letter(self, run: Run) -> bool:
        id_ = dead_run_id(run.tenant, str(run.key), run.replay_number)
        return run.state is RunState.DEAD and id_ not in self.store.tables[DEAD_LETTERS]

    def _unresolved(self) -> list[RunKey]:
        return [run.key for run in self._runs if run.state is RunState.UNRESOLVED]


def _services(scenario: Scenario) -> list[SupervisedService]:
    executor = services.executor(scenario.effect)
    return [
        SupervisedService(name="intake", main=services.intake),
        SupervisedService(name="ticker-1", main=services.ticker),
        SupervisedService(name="ticker-2", main=services.ticker),
        SupervisedService(name="dispatcher", main=services.dispatcher),
        SupervisedService(name="executor-1", main=executor),
        SupervisedService(name="executor-2", main=executor),
        SupervisedService(name="dlq_inspector", main=services.dlq_inspector),
    ]
