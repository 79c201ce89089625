"""A ticker without servers: its rules and its store functions on the in-memory ledger."""

from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final, TypeAlias, TypeVar

from tests.fakes.ledger.ledger import open_ledger
from tests.fakes.ledger.pool import Pool
from tests.fakes.ledger.runs import RUNS, Run, amend, move
from tests.fakes.ledger.schedules import STATES, VERSIONS
from tests.fakes.ledger.store import Transaction
from tests.fakes.schedules import HORIZON, ID, TASK

from harebell.contract.calendar import CalendarResponse
from harebell.contract.commands import SCHEDULE_COMMANDS, RunCancel, RunResolve
from harebell.contract.ids import RunKey
from harebell.contract.responses import RunResponse, ScheduleResponse
from harebell.contract.schedule import Definition, canonical_json
from harebell.domain.run_states import OPEN, Actor, RunState
from harebell.ticker.commands.handlers import CommandContext, apply_command
from harebell.ticker.model.outcomes import apply_outcomes
from harebell.ticker.model.planning import plan_schedule, plan_unit
from harebell.ticker.model.planning_window import PlanningStep
from harebell.ticker.model.unit_of_work import ScheduleRecord, UnitOfWork
from harebell.ticker.model.version import VersionStatus
from harebell.ticker.plan_writer import save_planning_steps, save_unit_of_work
from harebell.ticker.store.schedules import load_due, load_unit_of_work, save_states
from harebell.ticker.store.versions import VersionCache

TENANT: Final = "default"
EXECUTOR: Final = "executor-1"

T = TypeVar("T")
TickerResponse: TypeAlias = ScheduleResponse | RunResponse


def finish(coroutine: Coroutine[Any, Any, T]) -> T:
    """Return the result of a coroutine that never waits, because the ledger is in memory."""
    try:
        coroutine.send(None)
    except StopIteration as stopped:
        result: T = stopped.value
        return result
    raise AssertionError("The coroutine must end without a wait.")


@dataclass
class FakeTicker:
    """One schedule with its ledger, and the actions of users, tickers and executors."""

    now: datetime
    ledger: Pool = field(init=False, repr=False)
    versions: VersionCache = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self.ledger = open_ledger(lambda: self.now)
        self.versions = VersionCache()

    @property
    def horizon(self) -> datetime:
        return self.now + HORIZON

    def wait(self, seconds: float) -> "FakeTicker":
        self.now += timedelta(seconds=seconds)
        return self

    # The actions of users

    def put(self, when: dict[str, Any], **fields: Any) -> TickerResponse:
        return self.send("schedule.put", key="k", when=when, **{"target": TASK, **fields})

    def send(self, verb: str, **body: Any) -> TickerResponse:
        return self.send_all((verb, body))[0]

    def send_all(self, *commands: tuple[str, dict[str, Any]]) -> list[TickerResponse]:
        """Apply the commands in one transaction."""
        contexts = [self.context_of(verb, body) for verb, body in commands]

        async def apply() -> list[TickerResponse]:
            async with self._transaction() as connection:
                unit = await self._load(connection, contexts)
                responses = [_apply(unit, context) for context in contexts]
                steps = await self._write(connection, unit)
            self.on_saved(steps)
            return responses

        return finish(apply())

    def context_of(self, verb: str, body: dict[str, Any]) -> CommandContext:
        command = SCHEDULE_COMMANDS[verb].model_validate(
            body if verb == "schedule.put" or "run_id" in body else {"key": "k", **body}
        )
        schedule_id = ID
        if isinstance(command, RunCancel | RunResolve):
            schedule_id = RunKey.parse(command.run_id).schedule_id
        return CommandContext(TENANT, command, schedule_id, self.now, "tester")

    # The actions of tickers

    def load_unit(self, *contexts: CommandContext) -> UnitOfWork:
        """Load the schedule, its open runs and the runs that the commands name."""

        async def load() -> UnitOfWork:
            async with self._transaction() as connection:
                return await self._load(connection, contexts)

        return finish(load())

    def save(self, unit: UnitOfWork) -> None:
        """Write the unit of work and plan the changed schedules."""

        async def save() -> None:
            async with self._transaction() as connection:
                steps = await self._write(connection, unit)
            self.on_saved(steps)

        finish(save())

    def stage_all(self) -> "FakeTicker":
        """Repeat staging passes until no run up to the horizon is left."""
        while (next_at := self._next_at) is not None and next_at <= self.horizon:
            finish(self._stage_once())
        return self

    async def _stage_once(self) -> None:
        async with self._transaction() as connection:
            due = await load_due(connection, self.versions, self.horizon, limit=1)
            steps = [plan_schedule(record, self.now, self.horizon) for record in due]
            await save_planning_steps(connection, steps, now=self.now)
        self.on_saved(steps)

    def reconcile(self) -> "FakeTicker":
        """Apply the outcomes of ended runs."""

        async def reconcile() -> None:
            async with self._transaction() as connection:
                unit = await self._load(connection)
                apply_outcomes(unit, unit.schedules[ID])
                steps = await self._write(connection, unit)
            self.on_saved(steps)

        finish(reconcile())
        return self

    def on_saved(self, steps: Sequence[PlanningStep]) -> None:
        """Receive the planning steps after each commit, for subclasses."""

    async def _load(self, connection: Any, contexts: Sequence[CommandContext] = ()) -> UnitOfWork:
        named = [each.schedule_id for each in contexts if each.schedule_id is not None]
        runs = [key for each in contexts for key in each.named_runs]
        return await load_unit_of_work(connection, self.versions, [ID, *named], named_runs=runs)

    async def _write(self, connection: Any, unit: UnitOfWork) -> list[PlanningStep]:
        steps = plan_unit(unit, now=self.now, until=self.horizon)
        await save_unit_of_work(connection, unit)
        await save_planning_steps(connection, steps, now=self.now)
        return steps

    @asynccontextmanager
    async def _transaction(self) -> AsyncIterator[Any]:
        async with self.ledger.acquire() as connection, connection.transaction():
            yield connection

    # The actions of executors

    def claim(self, time: datetime, *, started: bool = False) -> None:
        run = self._run(time)
        assert run.is_waiting
        started_at = self.now if started else None
        self._move(
            run,
            RunState.RUNNING,
            Actor.CLAIM,
            attempt=run.attempt + 1,
            lease_holder=EXECUTOR,
            started_at=started_at,
        )

    def cancel_unstarted(self, time: datetime) -> None:
        """End a run with a stop request before its start, as if it had no attempt."""
        run = self._run(time)
        assert run.stop_reason is not None
        cancelled = {"attempt": run.attempt - 1, "finished_at": self.now, "lease_holder": None}
        self._move(run, RunState.CANCELLED, Actor.COMPLETE, **cancelled)

    def complete(self, time: datetime, state: RunState = RunState.SUCCEEDED) -> None:
        actor = Actor.RECOVER if state is RunState.UNRESOLVED else Actor.COMPLETE
        finished_at = None if state in OPEN else self.now
        cleared = dict.fromkeys(("reason", "stop_requested_at", "lease_holder"))
        self._move(self._run(time), state, actor, finished_at=finished_at, **cleared)

    def run_due(self) -> None:
        """Run every staged run that is due, without a duration."""
        for time in self._times(
            lambda run: run.state is RunState.STAGED and run.due_at <= self.now
        ):
            self.claim(time, started=True)
            self.complete(time)

    # The content of the tables

    @property
    def rows(self) -> dict[RunKey, Run]:
        """Return the rows of runs, without the rows of skipped ranges."""
        rows = self._table(RUNS)
        return {key: run for key, run in rows.items() if run.range_count is None}

    @property
    def skipped_counts(self) -> dict[datetime, int]:
        """Return the number of skipped times by the first time of each range."""
        ranges = (run for run in self._table(RUNS).values() if run.range_count is not None)
        return {run.scheduled_for: run.range_count for run in ranges}

    def times_in(self, *states: RunState) -> list[datetime]:
        return sorted(self._times(lambda run: run.state in states))

    @property
    def staged_times(self) -> list[datetime]:
        return self.times_in(RunState.STAGED)

    @property
    def record(self) -> ScheduleRecord:
        record = self.stored_record
        assert record is not None
        return record

    @property
    def stored_record(self) -> ScheduleRecord | None:
        return self.load_unit().schedules.get(ID)

    @property
    def stored_pending(self) -> tuple[int | None, datetime | None]:
        """Return the number and the effective time of the next pending version in the row."""
        state = self._table(STATES)[ID]
        return state["pending_version"], state["pending_at"]

    @property
    def version_statuses(self) -> dict[int, tuple[VersionStatus, str | None]]:
        return {
            version["version"]: (VersionStatus(version["status"]), version.get("status_reason"))
            for version in self._table(VERSIONS).values()
        }

    def version_row(self, number: int) -> dict[str, Any]:
        row: dict[str, Any] = self._table(VERSIONS)[ID, number]
        return row

    def store_record(self, record: ScheduleRecord) -> None:
        """Replace the state of the schedule."""

        async def save() -> None:
            async with self._transaction() as connection:
                await save_states(connection, [record])

        finish(save())

    def store_definition(self, number: int, definition: Definition) -> None:
        """Replace the definition of a version, although versions are immutable."""
        transaction = Transaction(self.ledger.store, self)
        version = transaction.get(VERSIONS, (ID, number))
        text = canonical_json(definition.to_json())
        transaction.put(VERSIONS, (ID, number), version | {"definition": text})
        transaction.commit()
        self.versions = VersionCache()

    def change_row(self, time: datetime, **columns: Any) -> None:
        """Change columns of a run without a transition."""
        transaction = Transaction(self.ledger.store, self)
        amend(transaction, self._run(time), **columns)
        transaction.commit()

    def _times(self, is_wanted: Callable[[Run], bool]) -> list[datetime]:
        """Return the scheduled times of the wanted rows. The search builds no keys."""
        rows = self._table(RUNS).values()
        return [run.scheduled_for for run in rows if run.range_count is None and is_wanted(run)]

    def _run(self, time: datetime) -> Run:
        run: Run = self._table(RUNS)[RunKey(time, ID)]
        return run

    def _move(self, run: Run, state: RunState, actor: Actor, **columns: Any) -> None:
        transaction = Transaction(self.ledger.store, self)
        assert move(transaction, actor, run, state, **columns) is not None
        transaction.commit()

    @property
    def _next_at(self) -> datetime | None:
        state = self._table(STATES).get(ID)
        next_at: datetime | None = None if state is None else state["next_at"]
        return next_at

    def _table(self, name: str) -> dict[Any, Any]:
        return self.ledger.store.tables[name]


def _apply(unit: UnitOfWork, context: CommandContext) -> TickerResponse:
    """Apply a command to a schedule or to a run."""
    response = apply_command(unit, context)
    assert not isinstance(response, CalendarResponse)
    return response
