"""An executor of runs that restrict overlap: their rows, tickets, claims and completions."""

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final
from uuid import UUID, uuid5

import asyncpg
from tests.contract.ledger_rows import (
    HOLDER,
    LEASE,
    NOW,
    SEQ,
    VERSION,
    Row,
    completion_of,
    insert_rows_as,
    row_of,
)

from harebell.contract.amqp_names import Lane
from harebell.contract.ids import RunKey
from harebell.contract.policy import Overlap
from harebell.contract.target import TaskCall, TaskTarget
from harebell.contract.ticket import RunSpec, Ticket
from harebell.domain.run_states import RunState
from harebell.executor.claiming.claimer import TicketsByKey
from harebell.executor.claiming.overlap import OverlapPlan, claim_with_overlap
from harebell.ledger.woken_runs import wake_next
from harebell.storage.runs import claims, completion, overlap

SPACE: Final = UUID("1c1f6a8e-0b7c-5a0a-8d8e-5a52f3c0b9d1")
FIND_SLOTS: Final = "SELECT * FROM overlap_slots WHERE schedule_id = $1"
INSERT_VERSION: Final = """
INSERT INTO schedule_versions (schedule_id, version, definition, run_spec, fingerprint, accepted_at,
                               effective_at, status)
VALUES ($1, $2, '{}', $3, '', $4, $4, 'active') ON CONFLICT DO NOTHING
"""
MAX_LOCK_TIMEOUTS: Final = 5  # of one claim
STAGED = RunState.STAGED
SKIP, QUEUE, REPLACE = Overlap.SKIP, Overlap.QUEUE, Overlap.REPLACE


def key(number: int, schedule: int = 0) -> RunKey:
    return RunKey(NOW + timedelta(seconds=number), uuid5(SPACE, str(schedule)))


def ticket(run: RunKey, policy: Overlap, seq: int = SEQ) -> Ticket:
    return Ticket(
        schedule_id=run.schedule_id,
        scheduled_for=run.scheduled_for,
        due_at=run.scheduled_for,
        seq=seq,
        version=VERSION,
        pool="default",
        lane=Lane.NORMAL,
        priority=5,
        run_spec=RunSpec(
            tenant="acme",
            target=TaskTarget(task=TaskCall(name="harebell.echo")),
            overlap=policy,
        ),
    )


@dataclass
class Executor:
    """An executor that claims and completes runs and wakes the next ones, without messages."""

    ledger: asyncpg.Pool
    policy: Overlap
    holder: str = HOLDER
    _: KW_ONLY
    tokens: dict[RunKey, int] = field(default_factory=dict)

    async def claim(
        self, *runs: RunKey, seq: int = SEQ, due_at: datetime | None = None
    ) -> OverlapPlan:
        """Claim the runs with tickets that are due at `due_at` or at their scheduled time."""
        tickets = {
            claims.ClaimKey(
                key=run,
                seq=seq,
                version=VERSION,
                override=None,
                lease=LEASE,
                due_at=due_at or run.scheduled_for,
            ): ticket(run, self.policy, seq)
            for run in runs
        }
        claimed, plan = await self._claim(tickets)
        self.tokens |= {run: claim.token for run, claim in claimed.items()}
        return plan

    async def _claim(self, tickets: TicketsByKey) -> tuple[dict[RunKey, claims.Claim], OverlapPlan]:
        """Claim once more after a timeout of a lock, as an executor does on a busy machine."""
        for _ in range(MAX_LOCK_TIMEOUTS):
            with suppress(asyncpg.LockNotAvailableError):
                async with self.ledger.acquire() as connection, connection.transaction():
                    return await claim_with_overlap(connection, tickets, self.holder)
        raise AssertionError(f"A claim did not get its locks {MAX_LOCK_TIMEOUTS} times.")

    async def complete(self, run: RunKey, state: RunState = RunState.SUCCEEDED) -> list[RunKey]:
        """Complete the run and return the woken runs."""
        policies = {run.schedule_id: self.policy}
        async with self.ledger.acquire() as connection, connection.transaction():
            await overlap.lock(connection, policies)
            moved = await completion.complete(
                connection, [completion_of(run, state, token=self.tokens.pop(run))]
            )
            assert set(moved) == {run}
            woken = await wake_next(connection, policies, NOW)
        return [each.key for each in woken]


async def insert_runs(ledger: asyncpg.Pool, runs: Iterable[RunKey], row: Row | None = None) -> None:
    runs = list(runs)
    await insert_rows_as(ledger, dict.fromkeys(runs, row or Row(STAGED)))
    await insert_versions(ledger, {run.schedule_id for run in runs})


async def insert_versions(ledger: asyncpg.Pool, schedules: Iterable[UUID]) -> None:
    """Insert the versions from which the tickets of woken runs are rebuilt."""
    run_spec = ticket(key(0), QUEUE).run_spec.model_dump_json(by_alias=True, exclude_none=True)
    await ledger.executemany(
        INSERT_VERSION, [(schedule, VERSION, run_spec, NOW) for schedule in schedules]
    )


async def states_and_reasons(
    ledger: asyncpg.Pool, runs: Iterable[RunKey]
) -> list[tuple[str, str | None]]:
    rows = [await row_of(ledger, run) for run in runs]
    return [(row["state"], row["reason"]) for row in rows]


async def slot_roles(ledger: asyncpg.Pool, schedule: UUID) -> Mapping[Any, str]:
    rows = await ledger.fetch(FIND_SLOTS, schedule)
    return {row["scheduled_for"]: row["role"] for row in rows}
