"""The desk's statements: a letter is kept once, replayed once or dropped, by its tenant alone."""

from datetime import timedelta
from uuid import NAMESPACE_URL, uuid5

import asyncpg
from tests.contract.ledger_rows import HOLDER, LEASE, NOW, PLACE, VERSION, Row, put_as, row_of

from harebell.contract.ids import RunKey, dead_run_id
from harebell.dlq_inspector.model.dead_letter import DeadLetter, DeadLetterKind
from harebell.dlq_inspector.model.results import DeadLetterState, LockedDeadLetter
from harebell.dlq_inspector.store import dead_letters
from harebell.domain.run_states import RunState
from harebell.storage.runs import claims

TENANT = PLACE.tenant
DEAD = Row(RunState.DEAD, 5, "attempts_exhausted")
LATER = NOW + timedelta(hours=1)


def key_of(name: str) -> RunKey:
    return RunKey(NOW, uuid5(NAMESPACE_URL, name))


def letter_of(key: RunKey) -> DeadLetter:
    """Of its first series."""
    return DeadLetter(
        id=dead_run_id(str(key), 0), tenant=TENANT, kind=DeadLetterKind.RUN,
        reason="attempts_exhausted",
        error="no", dead_at=NOW, payload={"target": {"task": {"name": "acme.report"}}}, run=key,
        replay_number=0, key="report", attempts=5,
    )  # fmt: skip


async def kept(ledger: asyncpg.Pool, name: str) -> DeadLetter:
    """Of a run that is dead."""
    key = key_of(name)
    await put_as(ledger, {key: DEAD})
    async with ledger.acquire() as connection:
        await dead_letters.insert_dead_letters(connection, [letter_of(key)])
    return letter_of(key)


async def held(
    ledger: asyncpg.Pool, letter: DeadLetter, tenant: str = TENANT
) -> LockedDeadLetter | None:
    async with ledger.acquire() as connection, connection.transaction():
        return (await dead_letters.lock_dead_letters(connection, tenant, [letter.id])).get(
            letter.id
        )


async def replay(ledger: asyncpg.Pool, letter: DeadLetter) -> bool:
    """Whether a series has begun."""
    async with ledger.acquire() as connection, connection.transaction():
        found = await dead_letters.lock_dead_letters(connection, TENANT, [letter.id])
        begun = await dead_letters.stage_replays(connection, TENANT, list(found.values()))
        await dead_letters.record_replays(connection, begun, actor="ada", note="again")
    return letter.id in begun


async def test_a_letter_that_comes_twice_is_kept_once(ledger: asyncpg.Pool) -> None:
    first, second = letter_of(key_of("twice")), letter_of(key_of("once"))

    async with ledger.acquire() as connection:
        assert await dead_letters.insert_dead_letters(connection, [first]) == [first]
        assert await dead_letters.insert_dead_letters(connection, [first, second, second]) == [
            second
        ]


async def test_a_letter_is_held_as_it_stands_and_for_its_tenant_alone(ledger: asyncpg.Pool) -> None:
    letter = await kept(ledger, "held")

    found = await held(ledger, letter)

    assert found == LockedDeadLetter(
        id=letter.id,
        kind=DeadLetterKind.RUN,
        state=DeadLetterState.OPEN,
        run=letter.run,
        replay_number=0,
        is_unstarted=False,
        override=None,
    )
    assert await held(ledger, letter, "another") is None


async def test_a_replay_begins_a_series_and_takes_the_letter_off_the_desk_once(
    ledger: asyncpg.Pool,
) -> None:
    letter = await kept(ledger, "replayed")
    assert letter.run is not None

    assert await replay(ledger, letter)

    row = await row_of(ledger, letter.run)
    assert (row["state"], row["replay_number"], row["attempt"]) == (RunState.STAGED, 1, 0)
    found = await held(ledger, letter)
    assert found is not None
    assert (found.state, found.is_unstarted) == (DeadLetterState.REPLAYED, True)
    assert not await replay(ledger, letter)
    assert (await row_of(ledger, letter.run))["seq"] == row["seq"]


async def test_a_replay_that_has_started_is_no_longer_unstarted(ledger: asyncpg.Pool) -> None:
    letter = await kept(ledger, "started")
    await replay(ledger, letter)
    assert letter.run is not None

    seq = (await row_of(ledger, letter.run))["seq"]
    wanted = claims.ClaimKey(
        key=letter.run, seq=seq, version=VERSION, override=None, lease=LEASE, due_at=LATER
    )

    assert await claims.claim(ledger, [wanted], HOLDER)

    found = await held(ledger, letter)
    assert found is not None
    assert not found.is_unstarted


async def test_a_letter_that_is_dropped_is_off_the_desk(ledger: asyncpg.Pool) -> None:
    letter = await kept(ledger, "dropped")

    async with ledger.acquire() as connection, connection.transaction():
        await dead_letters.lock_dead_letters(connection, TENANT, [letter.id])
        await dead_letters.discard(connection, [letter.id], actor="ada", note="of no use")

    found = await held(ledger, letter)
    assert found is not None
    assert (found.state, found.is_replayable) == (DeadLetterState.DISCARDED, False)
