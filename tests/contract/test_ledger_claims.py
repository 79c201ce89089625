"""Claims: exactly one claim of a run succeeds, and a lost response can be read again."""

import asyncio
from collections import Counter
from dataclasses import replace
from datetime import datetime, timedelta

import asyncpg
import pytest
from tests.contract.conftest import CONNECTIONS
from tests.contract.ledger_rows import (
    HOLDER,
    LEASE,
    NOW,
    SEQ,
    VERSION,
    Row,
    completion_of,
    insert_rows,
    insert_rows_as,
    new_run,
    row_of,
    run_keys,
    states_and_seqs,
)

from harebell.contract.ids import RunKey
from harebell.domain.run_states import RunState, fencing_token
from harebell.storage.runs import claims, completion, key_arrays, staging
from harebell.storage.runs.claims import Claim, ClaimKey, ClaimRejection
from harebell.ticker.store import schedules

STAGED = Row(RunState.STAGED)
OWN_NAME, OTHER_NAME = "executor-2", "executor-3"


def claim_key(
    key: RunKey, *, seq: int = SEQ, version: int = VERSION, due_at: datetime = NOW
) -> ClaimKey:
    return ClaimKey(key=key, seq=seq, version=version, override=None, lease=LEASE, due_at=due_at)


@pytest.mark.requirement("S80", "S93")
async def test_one_of_fifty_concurrent_claims_succeeds(ledger: asyncpg.Pool) -> None:
    await insert_rows(ledger, [STAGED])

    won = await asyncio.gather(
        *(
            claims.claim(ledger, [claim_key(STAGED.key)], f"executor-{number}")
            for number in range(CONNECTIONS)
        )
    )

    (winner,) = [number for number, claimed in enumerate(won) if claimed]
    row = await row_of(ledger, STAGED.key)
    assert won[winner] == {STAGED.key: Claim(STAGED.key, fencing_token(1, SEQ + 1), 1)}
    assert (row["lease_holder"], row["seq"], row["attempt"]) == (
        f"executor-{winner}",
        SEQ + 1,
        1,
    )


async def test_overlapping_batches_claim_each_run_once_without_a_deadlock(
    ledger: asyncpg.Pool,
) -> None:
    keys = run_keys(40)
    await insert_rows_as(ledger, dict.fromkeys(keys, STAGED))
    batches = [keys[start:] + keys[:start] for start in range(0, 40, 2)]

    won = await asyncio.gather(
        *(
            claims.claim(ledger, [claim_key(key) for key in batch[:30]], f"executor-{number}")
            for number, batch in enumerate(batches)
        )
    )

    assert Counter(key for claimed in won for key in claimed) == dict.fromkeys(keys, 1)
    assert set((await states_and_seqs(ledger)).values()) == {(RunState.RUNNING, SEQ + 1)}


@pytest.mark.parametrize(
    "stale",
    [
        replace(claim_key(STAGED.key), seq=SEQ - 1),
        replace(claim_key(STAGED.key), seq=SEQ + 1),
        replace(claim_key(STAGED.key), version=VERSION - 1),
        replace(claim_key(STAGED.key), version=VERSION + 1),
        replace(claim_key(STAGED.key), override="{}"),
        replace(claim_key(STAGED.key), key=Row(RunState.SKIPPED).key),
    ],
    ids=["older seq", "newer seq", "older version", "newer version", "override", "no row"],
)
async def test_ticket_claims_nothing_when_it_differs_from_its_row(
    ledger: asyncpg.Pool, stale: ClaimKey
) -> None:
    await insert_rows(ledger, [STAGED])

    assert await claims.claim(ledger, [stale], OWN_NAME) == {}
    assert await states_and_seqs(ledger) == {STAGED.key: (RunState.STAGED, SEQ)}


async def test_explain_rejection_returns_the_claim_whose_response_was_lost(
    ledger: asyncpg.Pool,
) -> None:
    await insert_rows(ledger, [STAGED])
    claimed = await claims.claim(ledger, [claim_key(STAGED.key)], OWN_NAME)

    again = await claims.claim(ledger, [claim_key(STAGED.key)], OWN_NAME)
    found = await claims.explain_rejection(ledger, [claim_key(STAGED.key)], OWN_NAME)

    assert again == {}
    assert [*found.values()] == [claimed[STAGED.key]]


async def test_explain_rejection_returns_stale_when_another_executor_has_claimed(
    ledger: asyncpg.Pool,
) -> None:
    await insert_rows(ledger, [STAGED])
    await claims.claim(ledger, [claim_key(STAGED.key)], OTHER_NAME)

    found = await claims.explain_rejection(ledger, [claim_key(STAGED.key)], OWN_NAME)

    assert [*found.values()] == [ClaimRejection.STALE]


@pytest.mark.parametrize(
    ("state", "seq", "reason"),
    [
        (None, SEQ, ClaimRejection.NOT_VISIBLE_YET),  # before its commit
        (RunState.STAGED, SEQ + 1, ClaimRejection.NOT_VISIBLE_YET),
        (
            RunState.RUNNING,
            SEQ,
            ClaimRejection.NOT_VISIBLE_YET,
        ),  # a retry before the commit of its completion
        (RunState.STAGED, SEQ - 1, ClaimRejection.STALE),
        (RunState.RUNNING, SEQ - 1, ClaimRejection.STALE),
        (RunState.CANCELLED, SEQ - 1, ClaimRejection.STALE),
        (RunState.SUCCEEDED, SEQ, ClaimRejection.STALE),
        (
            RunState.STAGED,
            SEQ,
            ClaimRejection.NOT_CLAIMED_YET,
        ),  # locked, or a commit after the claim statement
    ],
)
async def test_explain_rejection_returns_whether_a_later_claim_may_succeed(
    ledger: asyncpg.Pool, state: RunState | None, seq: int, reason: ClaimRejection
) -> None:
    row = Row(state or RunState.STAGED, 1)
    await insert_rows(ledger, [row] if state else [])

    found = await claims.explain_rejection(ledger, [claim_key(row.key, seq=seq)], OWN_NAME)

    assert [*found.values()] == [reason]


async def test_claim_skips_a_locked_row_and_does_not_wait(ledger: asyncpg.Pool) -> None:
    locked, free = run_keys(2)
    await insert_rows_as(ledger, dict.fromkeys([locked, free], STAGED))
    keys = [claim_key(locked), claim_key(free)]

    async with ledger.acquire() as command, command.transaction():
        await command.fetch(schedules.STATEMENTS.lock_runs, *key_arrays([locked]))
        claimed = await claims.claim(ledger, keys, OWN_NAME)
        rejections = await claims.explain_rejection(ledger, keys[:1], OWN_NAME)

    assert set(claimed) == {free}
    assert [*rejections.values()] == [ClaimRejection.NOT_CLAIMED_YET]
    assert set(await claims.claim(ledger, keys[:1], OWN_NAME)) == {locked}


@pytest.mark.requirement("S81")
async def test_claim_increases_the_attempt_and_sets_the_lease(
    ledger: asyncpg.Pool,
) -> None:
    retrying = Row(RunState.RETRYING, 1)
    await insert_rows(ledger, [retrying])
    before = await ledger.fetchval("SELECT now()")

    claimed = await claims.claim(ledger, [claim_key(retrying.key)], OWN_NAME)

    row = await row_of(ledger, retrying.key)
    assert claimed == {retrying.key: Claim(retrying.key, fencing_token(1, SEQ + 1), 2)}
    assert row["lease_until"] - before >= timedelta(seconds=LEASE)
    assert row["next_attempt_at"] is None


async def test_ticket_of_an_unrecorded_retry_claims_nothing_before_the_recorded_retry(
    ledger: asyncpg.Pool,
) -> None:
    """The rescuer published the retry and failed. The holder then recorded a later retry."""
    row, later = Row(RunState.RUNNING, 1), NOW + timedelta(hours=1)
    await insert_rows(ledger, [row])
    retry = completion_of(row.key, RunState.RETRYING)._replace(next_attempt_at=later)
    await completion.complete(ledger, [retry])

    orphan = claim_key(row.key, seq=SEQ + 1, due_at=NOW)
    assert await claims.claim(ledger, [orphan], OWN_NAME) == {}
    assert [*(await claims.explain_rejection(ledger, [orphan], OWN_NAME)).values()] == [
        ClaimRejection.NOT_CLAIMED_YET
    ]
    recorded = replace(orphan, due_at=later)
    assert set(await claims.claim(ledger, [recorded], OWN_NAME)) == {row.key}


async def test_ticket_claims_although_its_time_lacks_the_microseconds_of_its_row(
    ledger: asyncpg.Pool,
) -> None:
    row, later = Row(RunState.RUNNING, 1), NOW + timedelta(hours=1)
    await insert_rows(ledger, [row])
    within = later + timedelta(microseconds=999)
    retry = completion_of(row.key, RunState.RETRYING)._replace(next_attempt_at=within)
    await completion.complete(ledger, [retry])

    ticket = claim_key(row.key, seq=SEQ + 1, due_at=later)
    assert set(await claims.claim(ledger, [ticket], OWN_NAME)) == {row.key}


async def test_return_unstarted_reduces_the_attempt(ledger: asyncpg.Pool) -> None:
    first, second = Row(RunState.RUNNING, 1), Row(RunState.RUNNING, 2)
    await insert_rows(ledger, [first, second])

    async with ledger.acquire() as connection:
        returned = await claims.return_unstarted(
            connection, [claims.Claim(row.key, SEQ, 1) for row in (first, second)]
        )

    assert returned == {first.key: SEQ + 1, second.key: SEQ + 1}
    retaken = await claims.claim(
        ledger, [claim_key(key, seq=seq) for key, seq in returned.items()], OWN_NAME
    )
    assert {key: claim.attempt for key, claim in retaken.items()} == {first.key: 1, second.key: 2}


async def test_cancel_unstarted_cancels_a_run_with_a_stop_request_without_an_attempt(
    ledger: asyncpg.Pool,
) -> None:
    stopped = Row(RunState.RUNNING, 1, "superseded", has_stop_request=True)
    await insert_rows(ledger, [stopped, Row(RunState.RUNNING, 1)])

    cancelled = await claims.cancel_unstarted(
        ledger, [claims.Claim(row.key, SEQ, 1) for row in (stopped, Row(RunState.RUNNING, 1))]
    )

    row = await row_of(ledger, stopped.key)
    assert cancelled == {stopped.key}
    assert (row["state"], row["reason"], row["attempt"]) == ("cancelled", "superseded", 0)
    assert row["lease_holder"] is None


@pytest.mark.requirement("S83")
async def test_renew_extends_the_lease_and_keeps_the_seq(ledger: asyncpg.Pool) -> None:
    row = Row(RunState.RUNNING, 1, has_expired_lease=True)
    await insert_rows(ledger, [row])
    started = NOW - timedelta(seconds=2)

    renewed = await claims.renew(ledger, [claims.Claim(row.key, SEQ, 1, started)])

    found = await row_of(ledger, row.key)
    assert renewed == {row.key: None}
    assert (found["state"], found["seq"], found["lease_holder"]) == ("running", SEQ, HOLDER)
    assert found["lease_until"] > NOW
    assert found["started_at"] == started


async def test_renew_returns_the_reason_of_the_stop_request(ledger: asyncpg.Pool) -> None:
    row = Row(RunState.RUNNING, 1, "cancelled", has_stop_request=True)
    await insert_rows(ledger, [row])

    assert await claims.renew(ledger, [claims.Claim(row.key, SEQ, 1)]) == {row.key: "cancelled"}


async def test_renew_skips_a_locked_row(ledger: asyncpg.Pool) -> None:
    locked, free = Row(RunState.RUNNING, 1), Row(RunState.RUNNING, 2)
    await insert_rows(ledger, [locked, free])
    claimed = [claims.Claim(row.key, SEQ, 1) for row in (locked, free)]

    async with ledger.acquire() as connection, connection.transaction():
        await connection.execute(
            "SELECT FROM runs WHERE schedule_id = $1 FOR UPDATE", locked.key.schedule_id
        )
        renewed = await claims.renew(ledger, claimed)

    assert set(renewed) == {free.key}


@pytest.mark.parametrize("override", [None, '{"overlap":"skip"}'])
async def test_ticket_claims_nothing_when_it_has_another_override(
    ledger: asyncpg.Pool, override: str | None
) -> None:
    (key,) = run_keys(1)
    own = '{"overlap":"queue"}'
    async with ledger.acquire() as connection:
        await staging.stage(connection, [new_run(key)._replace(override=own)])
    wanted = claim_key(key, seq=1)

    assert await claims.claim(ledger, [replace(wanted, override=override)], HOLDER) == {}
    assert await claims.claim(ledger, [replace(wanted, override=own)], HOLDER)
