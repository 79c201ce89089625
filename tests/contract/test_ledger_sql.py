"""The ledger's SQL is held to its model: each statement moves just the rows that its actor may."""

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
    PLACE,
    ROWS,
    SEQ,
    VERSION,
    Row,
    ending,
    owed,
    put,
    seqs,
)

from harebell.contract.ids import RunKey
from harebell.dlq_inspector.model.dead_letter import DeadLetterKind
from harebell.dlq_inspector.model.results import DeadLetterState
from harebell.dlq_inspector.model.results import LockedDeadLetter as Letter
from harebell.dlq_inspector.store import dead_letters as desk
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
from harebell.storage.runs import claims, completion, overlap, rate_limits, recovery, staging

Keys = Sequence[RunKey]
_S = RunState


@dataclass(frozen=True, slots=True)
class Statement:
    """`to` is where it would take a row, by its own conditions; the model has the other say."""

    name: str
    actor: Actor
    run: Callable[[asyncpg.Connection, Keys], Awaitable[object]]
    to: Callable[[Row], RunState | None]

    def moves(self, row: Row) -> RunState | None:
        after = self.to(row)
        return after if after is not None and is_allowed(self.actor, row.state, after) else None


def held(keys: Keys) -> list[claims.Claim]:
    return [claims.Claim(key, SEQ, 1) for key in keys]


async def claim(ledger: asyncpg.Pool, keys: Keys) -> object:
    wanted = [
        claims.ClaimKey(key=key, seq=SEQ, version=VERSION, override=None, lease=LEASE, due_at=NOW)
        for key in keys
    ]
    return await claims.claim(ledger, wanted, "executor-2")


async def drop(ledger: asyncpg.Pool, keys: Keys) -> object:
    return await claims.cancel_unstarted(ledger, held(keys))


async def release(ledger: asyncpg.Connection, keys: Keys) -> object:
    return await claims.return_unstarted(ledger, held(keys))


async def cancel(ledger: asyncpg.Connection, keys: Keys) -> None:
    await staging.cancel(ledger, dict.fromkeys(keys, Reason.SUPERSEDED))


async def take_out(ledger: asyncpg.Connection, keys: Keys) -> None:
    untouched = {row.key for row in ROWS if row.state is RunState.STAGED}
    await staging.cancel(ledger, {key: Reason.MANUAL for key in keys if key in untouched})


async def take_version(ledger: asyncpg.Connection, keys: Keys) -> None:
    await staging.move_to_version(ledger, [owed(key) for key in keys])


async def stage(ledger: asyncpg.Connection, keys: Keys) -> object:
    return await staging.stage(ledger, [owed(key) for key in keys])


async def skip(ledger: asyncpg.Connection, keys: Keys) -> None:
    await staging.skip(
        ledger,
        [
            SkippedRange(key=key, placement=PLACE, until=NOW, count=1, reason=Reason.PAUSED)
            for key in keys
        ],
    )


async def replay(ledger: asyncpg.Connection, keys: Keys) -> object:
    letters = [
        Letter(
            id=uuid5(key.schedule_id, "letter"),
            kind=DeadLetterKind.RUN,
            state=DeadLetterState.OPEN,
            run=key,
            replay_number=1,
            is_unstarted=False,
        )
        for key in keys
    ]
    return await desk.stage_replays(ledger, PLACE.tenant, letters)


async def put_off(ledger: asyncpg.Connection, keys: Keys) -> object:
    return await rate_limits.delay_runs(
        ledger,
        [rate_limits.DelayedRun(key=k, seq=SEQ, next_attempt_at=NOW, is_cold=False) for k in keys],
    )


def put_off_to(row: Row) -> RunState | None:
    if row.asked_to_stop or row.state not in OPEN:
        return None
    if row.state is _S.RUNNING:
        return _S.STAGED if row.attempt == 1 else _S.RETRYING
    return row.state


async def wake(ledger: asyncpg.Connection, keys: Keys) -> object:
    return await overlap.wake(ledger, keys)


def resolve(state: RunState) -> Statement:
    async def run(ledger: asyncpg.Connection, keys: Keys) -> None:
        await staging.resolve(ledger, dict.fromkeys(keys, state))

    return Statement(
        f"resolve as {state}",
        Actor.TICKER,
        run,
        lambda row: state if row.state is _S.UNRESOLVED else None,
    )


def give_up(state: RunState) -> Statement:
    async def run(ledger: asyncpg.Connection, keys: Keys) -> None:
        await overlap.finish_without_attempt(ledger, dict.fromkeys(keys, (state, Reason.OVERLAP)))

    return Statement(f"give up as {state}", Actor.OVERLAP, run, lambda _: state)


def settle(state: RunState) -> Statement:
    async def run(ledger: asyncpg.Connection, keys: Keys) -> object:
        return await completion.complete(ledger, [ending(key, state) for key in keys])

    return Statement(f"settle as {state}", Actor.COMPLETE, run, lambda _: state)


def sweep(state: RunState) -> Statement:
    async def run(ledger: asyncpg.Connection, keys: Keys) -> object:
        found = await recovery.lock_expired_leases(ledger, [], by_time=True)
        assert {each.key for each in found} <= set(keys)
        return await completion.complete(ledger, [ending(each.key, state) for each in found])

    return Statement(
        f"sweep as {state}", Actor.RECOVER, run, lambda row: state if row.lapsed else None
    )


STATEMENTS: Final = [
    Statement("claim", Actor.CLAIM, claim, lambda row: None if row.expired else _S.RUNNING),
    *(settle(after) for before, after in TRANSITIONS if is_allowed(Actor.COMPLETE, before, after)),
    *(sweep(after) for before, after in TRANSITIONS if is_allowed(Actor.RECOVER, before, after)),
    Statement(
        "drop", Actor.COMPLETE, drop, lambda row: _S.CANCELLED if row.asked_to_stop else None
    ),
    Statement(
        "release",
        Actor.RETURN,
        release,
        lambda row: None if row.asked_to_stop else _S.STAGED if row.attempt < 2 else _S.RETRYING,
    ),
    Statement("put off", Actor.RATE_LIMIT, put_off, put_off_to),
    Statement("cancel", Actor.TICKER, cancel, lambda _: _S.CANCELLED),
    Statement(
        "take out",
        Actor.TICKER,
        take_out,
        lambda row: _S.SKIPPED if row.state is _S.STAGED else None,
    ),
    *(resolve(state) for state in (_S.STAGED, _S.SUCCEEDED, _S.SKIPPED)),
    Statement(
        "expire",
        Actor.TICKER,
        recovery.expire_overdue,
        lambda row: _S.EXPIRED if row.expired else None,
    ),
    Statement(
        "take a version",
        Actor.TICKER,
        take_version,
        lambda row: _S.STAGED if row.state is _S.STAGED else None,
    ),
    Statement(
        "stage",
        Actor.TICKER,
        stage,
        lambda row: (
            _S.STAGED
            if row.state is not _S.STAGED and not row.attempt and row.reason in RESTAGEABLE
            else None
        ),
    ),
    Statement(
        "skip",
        Actor.TICKER,
        skip,
        lambda row: _S.SKIPPED if not row.attempt and row.reason in RESTAGEABLE else None,
    ),
    Statement(
        "wake",
        Actor.OVERLAP,
        wake,
        lambda row: row.state if row.reason == Reason.WAITING_FOR_OVERLAP else None,
    ),
    give_up(_S.SKIPPED),
    give_up(_S.CANCELLED),
    Statement("replay", Actor.REPLAY, replay, lambda _: _S.STAGED),
]
BIRTHS: Final = {"stage", "skip"}  # where there is no row they make one


@pytest.mark.requirement("S40")
def test_every_transition_of_the_model_has_its_statement() -> None:
    moved = {
        (statement.actor, row.state, after)
        for statement in STATEMENTS
        for row in ROWS
        if (after := statement.moves(row)) is not None
    }

    owned = {(actor, *pair) for pair, actors in TRANSITIONS.items() for actor in actors}
    assert moved == owned


def test_every_state_has_rows() -> None:
    assert {row.state for row in ROWS} == set(RunState)


@pytest.mark.parametrize("statement", STATEMENTS, ids=lambda statement: statement.name)
async def test_a_statement_moves_just_what_its_actor_may_and_adds_one_to_seq(
    ledger: asyncpg.Pool, statement: Statement
) -> None:
    await put(ledger, ROWS)

    await statement.run(ledger, [row.key for row in ROWS])

    found = await seqs(ledger)
    for row in ROWS:
        after = statement.moves(row)
        expected = (row.state, SEQ) if after is None else (after, SEQ + 1)
        assert found[row.key] == expected, row


async def test_no_row_is_an_answer(ledger: asyncpg.Pool) -> None:
    keys = [row.key for row in ROWS]
    found = [
        await statement.run(ledger, keys)
        for statement in STATEMENTS
        if statement.name not in BIRTHS
    ]

    assert not any(found)
    assert await seqs(ledger) == {}


@pytest.mark.requirement("S85")
async def test_a_holder_that_is_gone_loses_leases_that_it_left_unrenewed(
    ledger: asyncpg.Pool,
) -> None:
    rows = [Row(_S.RUNNING, 1, lapsed=True), Row(_S.RUNNING, 1), Row(_S.STAGED)]
    await put(ledger, rows)

    async with ledger.acquire() as connection, connection.transaction():
        by_absence = await recovery.lock_expired_leases(connection, [HOLDER], by_time=False)
        of_nobody = await recovery.lock_expired_leases(connection, [], by_time=False)

    assert [each.key for each in by_absence] == [rows[0].key]
    assert of_nobody == []
