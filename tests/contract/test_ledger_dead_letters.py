"""Dead letters: inserted once, and replayed once or discarded by their tenant only."""

from dataclasses import replace as replace_fields
from datetime import timedelta
from uuid import NAMESPACE_URL, uuid5

import asyncpg
from tests.contract.ledger_rows import (
    HOLDER,
    LEASE,
    NOW,
    PLACEMENT,
    VERSION,
    Row,
    completion_of,
    insert_rows_as,
    row_of,
)

from harebell.contract.ids import RunKey, dead_run_id, older_dead_run_id
from harebell.dlq_inspector.model.dead_letter import DeadLetter, DeadLetterKind
from harebell.dlq_inspector.model.results import DeadLetterState, LockedDeadLetter
from harebell.dlq_inspector.store import dead_letters
from harebell.domain.run_states import RunState
from harebell.storage.runs import claims, completion
from harebell.storage.runs.replays import RequestedReplay, stage_replays

TENANT = PLACEMENT.tenant
DEAD = Row(RunState.DEAD, 5, "attempts_exhausted", is_expired=True)
LATER = NOW + timedelta(hours=1)


def key_of(name: str) -> RunKey:
    return RunKey(NOW, uuid5(NAMESPACE_URL, name))


def dead_letter_of(key: RunKey) -> DeadLetter:
    """Return the dead letter of replay number 0."""
    return DeadLetter(
        id=dead_run_id(TENANT, str(key), 0),
        older_id=older_dead_run_id(str(key), 0),
        tenant=TENANT,
        kind=DeadLetterKind.RUN,
        reason="attempts_exhausted",
        error="no",
        dead_at=NOW,
        payload={"target": {"task": {"name": "acme.report"}}},
        run=key,
        replay_number=0,
        key="report",
        attempts=5,
    )


async def inserted(ledger: asyncpg.Pool, name: str) -> DeadLetter:
    """Insert a dead run and its dead letter."""
    key = key_of(name)
    await insert_rows_as(ledger, {key: DEAD})
    async with ledger.acquire() as connection:
        await dead_letters.insert_dead_letters(connection, [dead_letter_of(key)])
    return dead_letter_of(key)


async def locked(
    ledger: asyncpg.Pool, letter: DeadLetter, tenant: str = TENANT
) -> LockedDeadLetter | None:
    async with ledger.acquire() as connection, connection.transaction():
        return (await dead_letters.lock_dead_letters(connection, tenant, [letter.id])).get(
            letter.id
        )


async def replay(ledger: asyncpg.Pool, letter: DeadLetter) -> bool:
    """Replay the dead letter and return whether the run is staged."""
    async with ledger.acquire() as connection, connection.transaction():
        found = await dead_letters.lock_dead_letters(connection, TENANT, [letter.id])
        dead_runs = [
            RequestedReplay(
                id=each.id,
                key=each.run,
                replay_number=each.replay_number or 0,
                override=each.override,
            )
            for each in found.values()
            if each.run is not None
        ]
        staged = await stage_replays(connection, TENANT, dead_runs)
        await dead_letters.record_replays(connection, TENANT, staged, actor="ada", note="again")
    return letter.id in staged


async def test_insert_dead_letters_inserts_a_repeated_dead_letter_once(
    ledger: asyncpg.Pool,
) -> None:
    first, second = dead_letter_of(key_of("twice")), dead_letter_of(key_of("once"))

    async with ledger.acquire() as connection:
        once = await dead_letters.insert_dead_letters(connection, [first])
        again = await dead_letters.insert_dead_letters(connection, [first, second, second])

    assert (once.new, again.new) == ([first], [second])
    assert (once.conflicts, again.conflicts) == ([], [])


async def test_insert_dead_letters_recognises_the_ids_of_older_versions(
    ledger: asyncpg.Pool,
) -> None:
    """Another tenant took the older id of the second one, which does not prevent its insertion."""
    own, taken = dead_letter_of(key_of("older")), dead_letter_of(key_of("taken"))
    async with ledger.acquire() as connection:
        await dead_letters.insert_dead_letters(
            connection,
            [
                replace_fields(own, id=own.older_id),
                replace_fields(taken, id=taken.older_id, tenant="another"),
            ],
        )

        inserted = await dead_letters.insert_dead_letters(connection, [own, taken])

    assert inserted.new == [taken]
    assert inserted.conflicts == [taken]


async def test_lock_dead_letters_returns_a_dead_letter_to_its_tenant_only(
    ledger: asyncpg.Pool,
) -> None:
    letter = await inserted(ledger, "locked")

    found = await locked(ledger, letter)

    assert found == LockedDeadLetter(
        id=letter.id,
        kind=DeadLetterKind.RUN,
        state=DeadLetterState.OPEN,
        run=letter.run,
        replay_number=0,
        is_unstarted=False,
        override=None,
    )
    assert await locked(ledger, letter, "another") is None


async def test_replay_stages_the_run_once_with_the_next_replay_number(
    ledger: asyncpg.Pool,
) -> None:
    letter = await inserted(ledger, "replayed")
    assert letter.run is not None

    assert await replay(ledger, letter)

    row = await row_of(ledger, letter.run)
    assert (row["state"], row["replay_number"], row["attempt"]) == (RunState.STAGED, 1, 0)
    assert row["expires_at"] is None  # a person requests the replay after the expiry
    found = await locked(ledger, letter)
    assert found is not None
    assert (found.state, found.is_unstarted) == (DeadLetterState.REPLAYED, True)
    assert not await replay(ledger, letter)
    assert (await row_of(ledger, letter.run))["seq"] == row["seq"]


async def test_replay_is_no_longer_unstarted_after_a_claim(ledger: asyncpg.Pool) -> None:
    letter = await inserted(ledger, "started")
    await replay(ledger, letter)
    assert letter.run is not None

    seq = (await row_of(ledger, letter.run))["seq"]
    wanted = claims.ClaimKey(
        key=letter.run, seq=seq, version=VERSION, override=None, lease=LEASE, due_at=LATER
    )

    assert await claims.claim(ledger, [wanted], HOLDER)

    found = await locked(ledger, letter)
    assert found is not None
    assert not found.is_unstarted


async def test_dead_letter_of_an_earlier_death_replays_nothing(ledger: asyncpg.Pool) -> None:
    letter = await inserted(ledger, "died twice")
    await replay(ledger, letter)
    assert letter.run is not None
    seq = (await row_of(ledger, letter.run))["seq"]
    wanted = claims.ClaimKey(
        key=letter.run, seq=seq, version=VERSION, override=None, lease=LEASE, due_at=LATER
    )
    claim = (await claims.claim(ledger, [wanted], HOLDER))[letter.run]
    died = completion_of(letter.run, RunState.DEAD, token=claim.token)
    assert letter.run in await completion.complete(ledger, [died])

    assert not await replay(ledger, letter)

    row = await row_of(ledger, letter.run)
    assert (row["state"], row["replay_number"]) == (RunState.DEAD, 1)


async def test_discarded_dead_letter_is_not_replayable(ledger: asyncpg.Pool) -> None:
    letter = await inserted(ledger, "discarded")

    async with ledger.acquire() as connection, connection.transaction():
        await dead_letters.lock_dead_letters(connection, TENANT, [letter.id])
        await dead_letters.discard(connection, TENANT, [letter.id], actor="ada", note="useless")

    found = await locked(ledger, letter)
    assert found is not None
    assert (found.state, found.is_replayable) == (DeadLetterState.DISCARDED, False)
