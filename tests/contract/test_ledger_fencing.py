"""Fencing: an executor with an old token cannot renew, return, cancel or complete a run."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta

import asyncpg
import pytest
from tests.contract.ledger_rows import (
    NOW,
    RAISE_EPOCH,
    SEQ,
    VERSION,
    Row,
    completion_of,
    insert_rows,
    row_of,
    states_and_seqs,
)
from tests.rig.servers import Servers

from harebell.contract.ids import RunKey
from harebell.domain.retry import LEASE_EXPIRED
from harebell.domain.run_states import MAX_EPOCH, AttemptCompletion, RunState, fencing_token, seq_of
from harebell.storage.runs import claims, completion

ROW = Row(RunState.RUNNING, 1, "cancelled", has_stop_request=True)
FENCED: dict[str, Callable[[asyncpg.Pool, Sequence[claims.Claim]], Awaitable[object]]] = {
    "renew": claims.renew,
    "cancel": claims.cancel_unstarted,
    "return": claims.return_unstarted,
}


@pytest.mark.parametrize("token", [SEQ - 1, SEQ + 1])
@pytest.mark.parametrize("name", FENCED)
async def test_fenced_statement_changes_nothing_with_a_wrong_token(
    ledger: asyncpg.Pool, name: str, token: int
) -> None:
    await insert_rows(ledger, [ROW])

    assert not await FENCED[name](ledger, [claims.Claim(ROW.key, token, 1)])
    assert await states_and_seqs(ledger) == {ROW.key: (RunState.RUNNING, SEQ)}


@pytest.mark.requirement("S92", "ASK-14")
@pytest.mark.parametrize("token", [SEQ - 1, SEQ + 1])
async def test_complete_records_no_attempt_with_a_wrong_token(
    ledger: asyncpg.Pool, token: int
) -> None:
    await insert_rows(ledger, [ROW])

    assert (
        await completion.complete(ledger, [completion_of(ROW.key, RunState.SUCCEEDED, token=token)])
        == {}
    )
    assert await states_and_seqs(ledger) == {ROW.key: (RunState.RUNNING, SEQ)}
    assert await ledger.fetchval("SELECT count(*) FROM attempts") == 0


@pytest.mark.requirement("S52")
async def test_complete_records_only_the_runs_with_a_valid_token(ledger: asyncpg.Pool) -> None:
    valid, expired = Row(RunState.RUNNING, 1), Row(RunState.RUNNING, 2)
    await insert_rows(ledger, [valid, expired])

    moved = await completion.complete(
        ledger,
        [
            completion_of(expired.key, RunState.SUCCEEDED, token=SEQ - 1),
            completion_of(valid.key, RunState.SUCCEEDED),
        ],
    )

    assert moved == {valid.key: SEQ + 1}


async def test_executor_and_rescuer_complete_a_run_once(ledger: asyncpg.Pool) -> None:
    await insert_rows(ledger, [ROW])
    recovered = completion_of(ROW.key, RunState.RETRYING)._replace(outcome=LEASE_EXPIRED)

    results = await asyncio.gather(
        *(
            completion.complete(ledger, [each])
            for each in (completion_of(ROW.key, RunState.SUCCEEDED), recovered) * 5
        )
    )

    assert [moved for moved in results if moved] == [{ROW.key: SEQ + 1}]
    assert await ledger.fetchval("SELECT count(*) FROM attempts") == 1


async def test_find_recorded_returns_the_completion_whose_response_was_lost(
    ledger: asyncpg.Pool,
) -> None:
    ended, open_ = Row(RunState.RUNNING, 1), Row(RunState.RUNNING, 2)
    await insert_rows(ledger, [ended, open_])
    both = [completion_of(row.key, RunState.SUCCEEDED) for row in (ended, open_)]
    await completion.complete(ledger, both[:1])

    assert await completion.find_recorded(ledger, both) == {ended.key}
    assert (
        await completion.find_recorded(ledger, [completion_of(ended.key, RunState.DEAD)]) == set()
    )


@pytest.mark.parametrize("state", [RunState.SUCCEEDED, RunState.RETRYING, RunState.DEAD])
async def test_complete_records_the_attempt_with_its_values(
    ledger: asyncpg.Pool, state: RunState
) -> None:
    await insert_rows(ledger, [ROW])
    ended = completion_of(ROW.key, state)

    await completion.complete(ledger, [ended])

    async with ledger.acquire() as connection:
        (attempt,) = await completion.attempt_history(connection, ROW.key)
    assert (attempt.replay_number, attempt.number, attempt.lease_holder) == (0, 1, "executor-1")
    assert (attempt.started_at, attempt.outcome) == (NOW, ended.outcome)
    assert (attempt.finished_at, attempt.error_code) == (ended.finished_at, ended.error_code)
    assert await ledger.fetchval("SELECT duration_ms FROM attempts") == ended.duration_ms


async def test_only_a_retry_stays_unfinished(ledger: asyncpg.Pool) -> None:
    retry, ended = Row(RunState.RUNNING, 1), Row(RunState.RUNNING, 2)
    await insert_rows(ledger, [retry, ended])

    await completion.complete(
        ledger,
        [completion_of(retry.key, RunState.RETRYING), completion_of(ended.key, RunState.DEAD)],
    )

    rows = await ledger.fetch("SELECT schedule_id FROM runs WHERE finished_at IS NULL")
    assert [row["schedule_id"] for row in rows] == [retry.key.schedule_id]


@pytest.mark.requirement("S34", "S108")
async def test_attempt_history_contains_every_attempt(ledger: asyncpg.Pool) -> None:
    row = Row(RunState.STAGED)
    await insert_rows(ledger, [row])
    seq = SEQ
    for _ in range(3):
        ticket = claims.ClaimKey(
            key=row.key,
            seq=seq,
            version=3,
            override=None,
            lease=15,
            due_at=NOW + timedelta(seconds=5),
        )
        won = await claims.claim(ledger, [ticket], "executor-1")
        token = won[row.key].token
        failed: AttemptCompletion = completion_of(row.key, RunState.RETRYING, token=token)
        seq = (await completion.complete(ledger, [failed]))[row.key]

    async with ledger.acquire() as connection:
        history = await completion.attempt_history(connection, row.key)

    assert [attempt.number for attempt in history] == [1, 2, 3]
    assert seq == SEQ + 6


async def test_find_stop_requests_returns_the_reasons_of_runs_with_a_valid_token(
    ledger: asyncpg.Pool,
) -> None:
    stopped, running = ROW, Row(RunState.RUNNING, 1)
    expired = Row(RunState.RUNNING, 2, "cancelled", has_stop_request=True)
    await insert_rows(ledger, [stopped, running, expired])
    retries = [completion_of(row.key, RunState.RETRYING) for row in (stopped, running)]

    async with ledger.acquire() as connection, connection.transaction():
        reasons = await completion.find_stop_requests(
            connection, [*retries, completion_of(expired.key, RunState.RETRYING, token=SEQ - 1)]
        )

    assert reasons == {stopped.key: "cancelled"}


@pytest.mark.requirement("S113")
async def test_failed_probe_is_an_attempt_in_the_history_that_does_not_count(
    ledger: asyncpg.Pool,
) -> None:
    row = Row(RunState.STAGED)
    await insert_rows(ledger, [row])
    seq, found = SEQ, []
    for is_failed_probe in (False, True, True, False):
        ticket = claims.ClaimKey(
            key=row.key,
            seq=seq,
            version=3,
            override=None,
            lease=15,
            due_at=NOW + timedelta(seconds=5),
        )
        claim = (await claims.claim(ledger, [ticket], "executor-1"))[row.key]
        found.append((seq_of(claim.token) - seq, claim.attempt, claim.failed_probes))
        failed = completion_of(row.key, RunState.RETRYING, token=claim.token)
        failed = failed._replace(is_failed_probe=is_failed_probe)
        seq = (await completion.complete(ledger, [failed]))[row.key]

    async with ledger.acquire() as connection:
        history = await completion.attempt_history(connection, row.key)
    assert found == [(1, 1, 0), (1, 2, 0), (1, 3, 1), (1, 4, 2)]
    assert [(each.number, bool(each.is_failed_probe)) for each in history] == [
        (1, False),
        (2, True),
        (3, True),
        (4, False),
    ]
    assert seq == SEQ + 8  # the claim and the end of each attempt, so that the token rises


@pytest.mark.postgres
async def test_token_of_the_database_equals_the_pure_rule(servers: Servers) -> None:
    url = await servers.make_database()
    connection = await asyncpg.connect(url)
    try:
        for epoch in (None, 1, 7, MAX_EPOCH):
            for seq in (1, SEQ, 2**31 - 1):
                token = await connection.fetchval("SELECT harebell_token($1, $2)", epoch, seq)
                assert token == fencing_token(epoch, seq)
                assert (seq_of(token), token < 2**53) == (seq, True)
        assert await connection.fetchval("SELECT harebell_epoch()") == 1  # the first timeline
    finally:
        await connection.close()
        await servers.drop_database(url)


async def claim_with(ledger: asyncpg.Pool, key: RunKey, seq: int, holder: str) -> claims.Claim:
    ticket = claims.ClaimKey(
        key=key,
        seq=seq,
        version=VERSION,
        override=None,
        lease=15,
        due_at=NOW + timedelta(seconds=5),
    )
    return (await claims.claim(ledger, [ticket], holder))[key]


async def held(ledger: asyncpg.Pool, key: RunKey) -> claims.Claim:
    row = await row_of(ledger, key)
    return claims.Claim(key, fencing_token(row["epoch"], row["seq"]), row["attempt"])


async def test_every_claim_after_a_promotion_has_a_higher_token(ledger: asyncpg.Pool) -> None:
    many, few = Row(RunState.STAGED), Row(RunState.RETRYING, 1)
    await insert_rows(ledger, [many, few])
    before = await claim_with(ledger, many.key, SEQ, "executor-1")
    for _ in range(3):  # a run with a higher `seq`, so that only the epoch makes the token higher
        async with ledger.acquire() as connection:
            returned = await claims.return_unstarted(connection, [await held(ledger, many.key)])
        before = await claim_with(ledger, many.key, returned[many.key], "executor-1")
    await ledger.execute(RAISE_EPOCH)

    after = await claim_with(ledger, few.key, SEQ, "executor-2")

    assert seq_of(after.token) < seq_of(before.token)
    assert after.token > before.token


@pytest.mark.parametrize("name", FENCED)
async def test_claim_that_the_promoted_standby_lacks_cannot_change_the_next_claim(
    ledger: asyncpg.Pool, name: str
) -> None:
    row = Row(RunState.STAGED)
    await insert_rows(ledger, [row])
    await ledger.execute(RAISE_EPOCH)
    claim = await claim_with(ledger, row.key, SEQ, "executor-2")
    epoch = claim.token >> 32
    lost = claim._replace(token=fencing_token(epoch - 1, seq_of(claim.token)))

    assert not await FENCED[name](ledger, [lost])
    ended = completion_of(row.key, RunState.SUCCEEDED, token=lost.token)
    assert not await completion.complete(ledger, [ended])
    assert await claims.renew(ledger, [claim]) == {row.key: None}


async def test_claim_survives_a_promotion_of_a_standby_that_has_it(ledger: asyncpg.Pool) -> None:
    row = Row(RunState.STAGED)
    await insert_rows(ledger, [row])
    claim = await claim_with(ledger, row.key, SEQ, "executor-1")
    await ledger.execute(RAISE_EPOCH)

    assert await claims.renew(ledger, [claim]) == {row.key: None}
    ended = completion_of(row.key, RunState.SUCCEEDED, token=claim.token)
    assert await completion.complete(ledger, [ended]) == {row.key: SEQ + 2}
