"""Fencing: whoever no longer holds a run cannot renew, release, drop or settle it."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta

import asyncpg
import pytest
from tests.contract.ledger_rows import NOW, SEQ, Row, ending, put, seqs

from harebell.domain.retry import LEASE_EXPIRED
from harebell.domain.run_states import AttemptCompletion, RunState
from harebell.storage.runs import claims, completion

ROW = Row(RunState.RUNNING, 1, "cancelled", asked_to_stop=True)  # may be dropped, too
HOLDERS: dict[str, Callable[[asyncpg.Pool, Sequence[claims.Claim]], Awaitable[object]]] = {
    "renew": claims.renew,
    "drop": claims.cancel_unstarted,
    "release": claims.return_unstarted,
}


@pytest.mark.parametrize("token", [SEQ - 1, SEQ + 1])
@pytest.mark.parametrize("name", HOLDERS)
async def test_a_wrong_token_holds_nothing(ledger: asyncpg.Pool, name: str, token: int) -> None:
    await put(ledger, [ROW])

    assert not await HOLDERS[name](ledger, [claims.Claim(ROW.key, token, 1)])
    assert await seqs(ledger) == {ROW.key: (RunState.RUNNING, SEQ)}


@pytest.mark.requirement("S92", "ASK-14")
@pytest.mark.parametrize("token", [SEQ - 1, SEQ + 1])
async def test_a_wrong_token_settles_nothing_and_leaves_no_attempt(
    ledger: asyncpg.Pool, token: int
) -> None:
    await put(ledger, [ROW])

    assert (
        await completion.complete(ledger, [ending(ROW.key, RunState.SUCCEEDED, token=token)]) == {}
    )
    assert await seqs(ledger) == {ROW.key: (RunState.RUNNING, SEQ)}
    assert await ledger.fetchval("SELECT count(*) FROM attempts") == 0


@pytest.mark.requirement("S52")
async def test_of_many_endings_only_those_still_held_stand(ledger: asyncpg.Pool) -> None:
    mine, taken = Row(RunState.RUNNING, 1), Row(RunState.RUNNING, 2)
    await put(ledger, [mine, taken])

    stood = await completion.complete(
        ledger,
        [
            ending(taken.key, RunState.SUCCEEDED, token=SEQ - 1),
            ending(mine.key, RunState.SUCCEEDED),
        ],
    )

    assert stood == {mine.key: SEQ + 1}


async def test_a_holder_and_the_sweep_settle_a_run_once_between_them(ledger: asyncpg.Pool) -> None:
    await put(ledger, [ROW])
    swept = ending(ROW.key, RunState.RETRYING)._replace(outcome=LEASE_EXPIRED)

    stood = await asyncio.gather(
        *(
            completion.complete(ledger, [each])
            for each in (ending(ROW.key, RunState.SUCCEEDED), swept) * 5
        )
    )

    assert [moved for moved in stood if moved] == [{ROW.key: SEQ + 1}]
    assert await ledger.fetchval("SELECT count(*) FROM attempts") == 1


async def test_an_ending_whose_answer_was_lost_is_found_on_the_record(
    ledger: asyncpg.Pool,
) -> None:
    ended, open_ = Row(RunState.RUNNING, 1), Row(RunState.RUNNING, 2)
    await put(ledger, [ended, open_])
    both = [ending(row.key, RunState.SUCCEEDED) for row in (ended, open_)]
    await completion.complete(ledger, both[:1])

    assert await completion.find_recorded(ledger, both) == {ended.key}
    assert await completion.find_recorded(ledger, [ending(ended.key, RunState.DEAD)]) == set()


@pytest.mark.parametrize("state", [RunState.SUCCEEDED, RunState.RETRYING, RunState.DEAD])
async def test_an_ending_leaves_the_attempt_as_it_was(
    ledger: asyncpg.Pool, state: RunState
) -> None:
    await put(ledger, [ROW])
    ended = ending(ROW.key, state)

    await completion.complete(ledger, [ended])

    async with ledger.acquire() as connection:
        (attempt,) = await completion.attempt_history(connection, ROW.key)
    assert (attempt.replay_number, attempt.number, attempt.lease_holder) == (0, 1, "executor-1")
    assert (attempt.started_at, attempt.outcome) == (NOW, ended.outcome)
    assert (attempt.finished_at, attempt.error_code) == (ended.finished_at, ended.error_code)
    assert await ledger.fetchval("SELECT duration_ms FROM attempts") == ended.duration_ms


async def test_only_a_run_that_is_tried_again_stays_open(ledger: asyncpg.Pool) -> None:
    again, over = Row(RunState.RUNNING, 1), Row(RunState.RUNNING, 2)
    await put(ledger, [again, over])

    await completion.complete(
        ledger, [ending(again.key, RunState.RETRYING), ending(over.key, RunState.DEAD)]
    )

    rows = await ledger.fetch("SELECT schedule_id FROM runs WHERE finished_at IS NULL")
    assert [row["schedule_id"] for row in rows] == [again.key.schedule_id]


@pytest.mark.requirement("S34", "S108")
async def test_every_attempt_of_a_run_is_in_its_story(ledger: asyncpg.Pool) -> None:
    row = Row(RunState.STAGED)
    await put(ledger, [row])
    seq = SEQ
    for _ in range(3):
        wanted = claims.ClaimKey(
            key=row.key,
            seq=seq,
            version=3,
            override=None,
            lease=15,
            due_at=NOW + timedelta(seconds=5),
        )
        won = await claims.claim(ledger, [wanted], "executor-1")
        token = won[row.key].token
        failed: AttemptCompletion = ending(row.key, RunState.RETRYING, token=token)
        seq = (await completion.complete(ledger, [failed]))[row.key]

    async with ledger.acquire() as connection:
        story = await completion.attempt_history(connection, row.key)

    assert [attempt.number for attempt in story] == [1, 2, 3]
    assert seq == SEQ + 6


async def test_whoever_settles_hears_why_a_run_was_asked_to_stop(ledger: asyncpg.Pool) -> None:
    asked, goes_on = ROW, Row(RunState.RUNNING, 1)
    taken = Row(RunState.RUNNING, 2, "cancelled", asked_to_stop=True)
    await put(ledger, [asked, goes_on, taken])
    tried = [ending(row.key, RunState.RETRYING) for row in (asked, goes_on)]

    async with ledger.acquire() as connection, connection.transaction():
        heard = await completion.find_stop_requests(
            connection, [*tried, ending(taken.key, RunState.RETRYING, token=SEQ - 1)]
        )

    assert heard == {asked.key: "cancelled"}
