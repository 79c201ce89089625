"""Each SQL statement of the ledger makes exactly the transitions that the model permits."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final
from uuid import uuid5

import asyncpg
import pytest
from tests.contract.ledger_rows import (
    HOLDER,
    LEASE,
    NOW,
    PLACEMENT,
    ROWS,
    SEQ,
    VERSION,
    Row,
    completion_of,
    insert_rows,
    new_run,
    states_and_seqs,
)

from harebell.contract.ids import RunKey
from harebell.domain.run_states import (
    OPEN,
    RESTAGEABLE,
    TRANSITIONS,
    Actor,
    Reason,
    RunState,
    SkippedRange,
    is_allowed,
)
from harebell.storage.runs import (
    claims,
    completion,
    delays,
    label_slots,
    overlap,
    recovery,
    replays,
    staging,
)

Keys = Sequence[RunKey]
_S = RunState


@dataclass(frozen=True, slots=True, kw_only=True)
class Statement:
    """A statement, its actor, and the state that its own conditions give a row.

    The model may forbid the transition.
    """

    name: str
    actor: Actor
    run: Callable[[asyncpg.Connection, Keys], Awaitable[object]]
    to: Callable[[Row], RunState | None]

    def moves(self, row: Row) -> RunState | None:
        after = self.to(row)
        return after if after is not None and is_allowed(self.actor, row.state, after) else None


def claims_of(keys: Keys) -> list[claims.Claim]:
    return [claims.Claim(key, SEQ, 1) for key in keys]


async def claim(ledger: asyncpg.Pool, keys: Keys) -> object:
    tickets = [
        claims.ClaimKey(key=key, seq=SEQ, version=VERSION, override=None, lease=LEASE, due_at=NOW)
        for key in keys
    ]
    return await claims.claim(ledger, tickets, "executor-2")


async def cancel_unstarted(ledger: asyncpg.Pool, keys: Keys) -> object:
    return await claims.cancel_unstarted(ledger, claims_of(keys))


async def return_unstarted(ledger: asyncpg.Connection, keys: Keys) -> object:
    return await claims.return_unstarted(ledger, claims_of(keys))


async def cancel(ledger: asyncpg.Connection, keys: Keys) -> None:
    await staging.cancel(ledger, dict.fromkeys(keys, Reason.SUPERSEDED))


async def skip_by_person(ledger: asyncpg.Connection, keys: Keys) -> None:
    unattempted = {row.key for row in ROWS if row.state is RunState.STAGED}
    await staging.cancel(ledger, {key: Reason.MANUAL for key in keys if key in unattempted})


async def move_to_version(ledger: asyncpg.Connection, keys: Keys) -> None:
    await staging.move_to_version(ledger, [new_run(key) for key in keys])


async def stage(ledger: asyncpg.Connection, keys: Keys) -> object:
    return await staging.stage(ledger, [new_run(key) for key in keys])


async def skip(ledger: asyncpg.Connection, keys: Keys) -> None:
    await staging.skip(
        ledger,
        [
            SkippedRange(key=key, placement=PLACEMENT, until=NOW, count=1, reason=Reason.PAUSED)
            for key in keys
        ],
    )


async def replay(ledger: asyncpg.Connection, keys: Keys) -> object:
    requested = [
        replays.RequestedReplay(
            id=uuid5(key.schedule_id, "dead letter"), key=key, replay_number=0, override=None
        )
        for key in keys
    ]
    return await replays.stage_replays(ledger, PLACEMENT.tenant, requested)


async def delay_runs(ledger: asyncpg.Connection, keys: Keys) -> object:
    runs = [delays.DelayedRun(key=k, seq=SEQ, next_attempt_at=NOW, is_cold=False) for k in keys]
    return await delays.delay_runs(ledger, runs, Reason.BLACKOUT)


def state_after_delay(row: Row) -> RunState | None:
    if row.has_stop_request or row.state not in OPEN:
        return None
    if row.state is _S.RUNNING:
        return _S.STAGED if row.attempt == 1 else _S.RETRYING
    return row.state


async def wake(ledger: asyncpg.Connection, keys: Keys) -> object:
    return await overlap.wake(ledger, keys)


async def wake_label(ledger: asyncpg.Connection, keys: Keys) -> object:
    return await label_slots.wake(ledger, keys)


def resolve(state: RunState) -> Statement:
    async def run(ledger: asyncpg.Connection, keys: Keys) -> None:
        await staging.resolve(ledger, dict.fromkeys(keys, state))

    return Statement(
        name=f"resolve as {state}",
        actor=Actor.RESOLVE,
        run=run,
        to=lambda row: state if row.state is _S.UNRESOLVED else None,
    )


def finish_without_attempt(state: RunState) -> Statement:
    async def run(ledger: asyncpg.Connection, keys: Keys) -> None:
        await overlap.finish_without_attempt(ledger, dict.fromkeys(keys, (state, Reason.OVERLAP)))

    return Statement(name=f"finish as {state}", actor=Actor.OVERLAP, run=run, to=lambda _: state)


def complete(state: RunState) -> Statement:
    async def run(ledger: asyncpg.Connection, keys: Keys) -> object:
        return await completion.complete(ledger, [completion_of(key, state) for key in keys])

    return Statement(name=f"complete as {state}", actor=Actor.COMPLETE, run=run, to=lambda _: state)


def recover(state: RunState) -> Statement:
    async def run(ledger: asyncpg.Connection, keys: Keys) -> object:
        found = await recovery.lock_expired_leases(ledger, [], by_time=True)
        assert {each.key for each in found} <= set(keys)
        return await completion.complete(ledger, [completion_of(each.key, state) for each in found])

    return Statement(
        name=f"recover as {state}",
        actor=Actor.RECOVER,
        run=run,
        to=lambda row: state if row.has_expired_lease else None,
    )


STATEMENTS: Final = [
    Statement(
        name="claim",
        actor=Actor.CLAIM,
        run=claim,
        to=lambda row: None if row.is_expired else _S.RUNNING,
    ),
    *(
        complete(after)
        for before, after in TRANSITIONS
        if is_allowed(Actor.COMPLETE, before, after)
    ),
    *(recover(after) for before, after in TRANSITIONS if is_allowed(Actor.RECOVER, before, after)),
    Statement(
        name="cancel unstarted",
        actor=Actor.COMPLETE,
        run=cancel_unstarted,
        to=lambda row: _S.CANCELLED if row.has_stop_request else None,
    ),
    Statement(
        name="return unstarted",
        actor=Actor.RETURN,
        run=return_unstarted,
        to=lambda row: (
            None if row.has_stop_request else _S.STAGED if row.attempt < 2 else _S.RETRYING
        ),
    ),
    Statement(name="delay", actor=Actor.DELAY, run=delay_runs, to=state_after_delay),
    Statement(name="cancel", actor=Actor.TICKER, run=cancel, to=lambda _: _S.CANCELLED),
    Statement(
        name="skip by a person",
        actor=Actor.TICKER,
        run=skip_by_person,
        to=lambda row: _S.SKIPPED if row.state is _S.STAGED else None,
    ),
    *(resolve(state) for state in (_S.STAGED, _S.SUCCEEDED, _S.SKIPPED)),
    Statement(
        name="expire",
        actor=Actor.TICKER,
        run=recovery.expire_overdue,
        to=lambda row: _S.EXPIRED if row.is_expired else None,
    ),
    Statement(
        name="move to version",
        actor=Actor.TICKER,
        run=move_to_version,
        to=lambda row: _S.STAGED if row.state is _S.STAGED else None,
    ),
    Statement(
        name="stage",
        actor=Actor.RESTAGE,
        run=stage,
        to=lambda row: (
            _S.STAGED
            if row.state is not _S.STAGED and not row.attempt and row.reason in RESTAGEABLE
            else None
        ),
    ),
    Statement(
        name="skip",
        actor=Actor.RESTAGE,
        run=skip,
        to=lambda row: _S.SKIPPED if not row.attempt and row.reason in RESTAGEABLE else None,
    ),
    Statement(
        name="wake",
        actor=Actor.OVERLAP,
        run=wake,
        to=lambda row: row.state if row.reason == Reason.WAITING_FOR_OVERLAP else None,
    ),
    Statement(
        name="wake for a label",
        actor=Actor.LABEL,
        run=wake_label,
        to=lambda row: row.state if row.reason == Reason.WAITING_FOR_LABEL else None,
    ),
    finish_without_attempt(_S.SKIPPED),
    finish_without_attempt(_S.CANCELLED),
    Statement(name="replay", actor=Actor.REPLAY, run=replay, to=lambda _: _S.STAGED),
]
INSERTING: Final = {"stage", "skip"}  # these statements insert a missing row


@pytest.mark.requirement("S40")
def test_every_transition_of_the_model_has_a_statement() -> None:
    moved = {
        (statement.actor, row.state, after)
        for statement in STATEMENTS
        for row in ROWS
        if (after := statement.moves(row)) is not None
    }

    permitted = {(actor, *pair) for pair, actors in TRANSITIONS.items() for actor in actors}
    assert moved == permitted


def test_every_state_has_rows() -> None:
    assert {row.state for row in ROWS} == set(RunState)


@pytest.mark.parametrize("statement", STATEMENTS, ids=lambda statement: statement.name)
async def test_statement_makes_only_permitted_transitions_and_increases_the_seq(
    ledger: asyncpg.Pool, statement: Statement
) -> None:
    await insert_rows(ledger, ROWS)

    await statement.run(ledger, [row.key for row in ROWS])

    found = await states_and_seqs(ledger)
    for row in ROWS:
        after = statement.moves(row)
        expected = (row.state, SEQ) if after is None else (after, SEQ + 1)
        assert found[row.key] == expected, row


async def test_statement_without_rows_returns_nothing(ledger: asyncpg.Pool) -> None:
    keys = [row.key for row in ROWS]
    found = [
        await statement.run(ledger, keys)
        for statement in STATEMENTS
        if statement.name not in INSERTING
    ]

    assert not any(found)
    assert await states_and_seqs(ledger) == {}


@pytest.mark.requirement("S85")
async def test_lock_expired_leases_returns_only_the_silent_leases_of_dead_holders(
    ledger: asyncpg.Pool,
) -> None:
    rows = [Row(_S.RUNNING, 1, has_expired_lease=True), Row(_S.RUNNING, 1), Row(_S.STAGED)]
    await insert_rows(ledger, rows)

    async with ledger.acquire() as connection, connection.transaction():
        of_dead_holder = await recovery.lock_expired_leases(connection, [HOLDER], by_time=False)
        of_no_holder = await recovery.lock_expired_leases(connection, [], by_time=False)

    assert [each.key for each in of_dead_holder] == [rows[0].key]
    assert of_no_holder == []
