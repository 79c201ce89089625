"""Claims: one winner however many try, and a lost answer can be read back."""

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
    crowd,
    ending,
    put,
    put_as,
    row_of,
    seqs,
)

from harebell.contract.ids import RunKey
from harebell.domain.run_states import RunState
from harebell.storage.runs import claims, completion
from harebell.storage.runs.claims import Claim, ClaimKey, ClaimRejection

STAGED = Row(RunState.STAGED)
MINE, ANOTHER = "executor-2", "executor-3"


def wanted(
    key: RunKey, *, seq: int = SEQ, version: int = VERSION, due_at: datetime = NOW
) -> ClaimKey:
    return ClaimKey(key=key, seq=seq, version=version, override=None, lease=LEASE, due_at=due_at)


@pytest.mark.requirement("S80", "S93")
async def test_of_fifty_claimants_of_one_run_one_wins(ledger: asyncpg.Pool) -> None:
    await put(ledger, [STAGED])

    won = await asyncio.gather(
        *(
            claims.claim(ledger, [wanted(STAGED.key)], f"executor-{number}")
            for number in range(CONNECTIONS)
        )
    )

    (winner,) = [number for number, mine in enumerate(won) if mine]
    row = await row_of(ledger, STAGED.key)
    assert won[winner] == {STAGED.key: Claim(STAGED.key, SEQ + 1, 1)}
    assert (row["lease_holder"], row["seq"], row["attempt"]) == (
        f"executor-{winner}",
        SEQ + 1,
        1,
    )


async def test_bundles_that_overlap_share_their_runs_out_and_never_deadlock(
    ledger: asyncpg.Pool,
) -> None:
    keys = crowd(40)
    await put_as(ledger, dict.fromkeys(keys, STAGED))
    bundles = [keys[start:] + keys[:start] for start in range(0, 40, 2)]

    won = await asyncio.gather(
        *(
            claims.claim(ledger, [wanted(key) for key in bundle[:30]], f"executor-{number}")
            for number, bundle in enumerate(bundles)
        )
    )

    assert Counter(key for mine in won for key in mine) == dict.fromkeys(keys, 1)
    assert set((await seqs(ledger)).values()) == {(RunState.RUNNING, SEQ + 1)}


@pytest.mark.parametrize(
    "stale",
    [
        replace(wanted(STAGED.key), seq=SEQ - 1),
        replace(wanted(STAGED.key), seq=SEQ + 1),
        replace(wanted(STAGED.key), version=VERSION - 1),
        replace(wanted(STAGED.key), version=VERSION + 1),
        replace(wanted(STAGED.key), override="{}"),
        replace(wanted(STAGED.key), key=Row(RunState.SKIPPED).key),
    ],
    ids=["older seq", "newer seq", "older version", "newer version", "override", "no row"],
)
async def test_a_ticket_that_is_not_the_rows_claims_nothing(
    ledger: asyncpg.Pool, stale: ClaimKey
) -> None:
    await put(ledger, [STAGED])

    assert await claims.claim(ledger, [stale], MINE) == {}
    assert await seqs(ledger) == {STAGED.key: (RunState.STAGED, SEQ)}


async def test_a_claim_whose_answer_was_lost_is_found_to_be_mine(ledger: asyncpg.Pool) -> None:
    await put(ledger, [STAGED])
    mine = await claims.claim(ledger, [wanted(STAGED.key)], MINE)

    again = await claims.claim(ledger, [wanted(STAGED.key)], MINE)
    found = await claims.explain_rejection(ledger, [wanted(STAGED.key)], MINE)

    assert again == {}
    assert [*found.values()] == [mine[STAGED.key]]


async def test_a_claim_that_another_won_is_stale(ledger: asyncpg.Pool) -> None:
    await put(ledger, [STAGED])
    await claims.claim(ledger, [wanted(STAGED.key)], ANOTHER)

    found = await claims.explain_rejection(ledger, [wanted(STAGED.key)], MINE)

    assert [*found.values()] == [ClaimRejection.STALE]


@pytest.mark.parametrize(
    ("state", "seq", "why"),
    [
        (None, SEQ, ClaimRejection.NOT_VISIBLE_YET),  # its commit is still to come
        (RunState.STAGED, SEQ + 1, ClaimRejection.NOT_VISIBLE_YET),
        (
            RunState.RUNNING,
            SEQ,
            ClaimRejection.NOT_VISIBLE_YET,
        ),  # a retry whose settle is still to come
        (RunState.STAGED, SEQ - 1, ClaimRejection.STALE),
        (RunState.RUNNING, SEQ - 1, ClaimRejection.STALE),
        (RunState.CANCELLED, SEQ - 1, ClaimRejection.STALE),
        (RunState.SUCCEEDED, SEQ, ClaimRejection.STALE),
        (RunState.STAGED, SEQ, ClaimRejection.NOT_VISIBLE_YET),  # committed since the claim looked
    ],
)
async def test_a_refused_ticket_has_outrun_its_commit_or_is_stale(
    ledger: asyncpg.Pool, state: RunState | None, seq: int, why: ClaimRejection
) -> None:
    row = Row(state or RunState.STAGED, 1)
    await put(ledger, [row] if state else [])

    found = await claims.explain_rejection(ledger, [wanted(row.key, seq=seq)], MINE)

    assert [*found.values()] == [why]


@pytest.mark.requirement("S81")
async def test_claiming_takes_the_next_attempt_and_a_lease_of_the_asked_length(
    ledger: asyncpg.Pool,
) -> None:
    retrying = Row(RunState.RETRYING, 1)
    await put(ledger, [retrying])
    before = await ledger.fetchval("SELECT now()")

    mine = await claims.claim(ledger, [wanted(retrying.key)], MINE)

    row = await row_of(ledger, retrying.key)
    assert mine == {retrying.key: Claim(retrying.key, SEQ + 1, 2)}
    assert row["lease_until"] - before >= timedelta(seconds=LEASE)
    assert row["next_attempt_at"] is None


async def test_a_retry_that_was_never_recorded_starts_nothing_before_the_one_that_was(
    ledger: asyncpg.Pool,
) -> None:
    """A sweep published it and failed; the frozen holder then recorded the same seq, for later."""
    row, later = Row(RunState.RUNNING, 1), NOW + timedelta(hours=1)
    await put(ledger, [row])
    retry = ending(row.key, RunState.RETRYING)._replace(next_attempt_at=later)
    await completion.complete(ledger, [retry])

    phantom = wanted(row.key, seq=SEQ + 1, due_at=NOW)
    assert await claims.claim(ledger, [phantom], MINE) == {}
    assert [*(await claims.explain_rejection(ledger, [phantom], MINE)).values()] == [
        ClaimRejection.NOT_VISIBLE_YET
    ]
    recorded = replace(phantom, due_at=later)
    assert set(await claims.claim(ledger, [recorded], MINE)) == {row.key}


async def test_a_ticket_tells_its_time_in_milliseconds_and_its_row_in_microseconds(
    ledger: asyncpg.Pool,
) -> None:
    row, later = Row(RunState.RUNNING, 1), NOW + timedelta(hours=1)
    await put(ledger, [row])
    within = later + timedelta(microseconds=999)
    retry = ending(row.key, RunState.RETRYING)._replace(next_attempt_at=within)
    await completion.complete(ledger, [retry])

    told = wanted(row.key, seq=SEQ + 1, due_at=later)
    assert set(await claims.claim(ledger, [told], MINE)) == {row.key}


async def test_releasing_gives_the_attempt_back(ledger: asyncpg.Pool) -> None:
    first, second = Row(RunState.RUNNING, 1), Row(RunState.RUNNING, 2)
    await put(ledger, [first, second])

    async with ledger.acquire() as connection:
        freed = await claims.return_unstarted(
            connection, [claims.Claim(row.key, SEQ, 1) for row in (first, second)]
        )

    assert freed == {first.key: SEQ + 1, second.key: SEQ + 1}
    retaken = await claims.claim(ledger, [wanted(key, seq=seq) for key, seq in freed.items()], MINE)
    assert {key: claim.attempt for key, claim in retaken.items()} == {first.key: 1, second.key: 2}


async def test_a_run_dropped_before_it_started_was_never_attempted(ledger: asyncpg.Pool) -> None:
    asked = Row(RunState.RUNNING, 1, "superseded", asked_to_stop=True)
    await put(ledger, [asked, Row(RunState.RUNNING, 1)])

    dropped = await claims.cancel_unstarted(
        ledger, [claims.Claim(row.key, SEQ, 1) for row in (asked, Row(RunState.RUNNING, 1))]
    )

    row = await row_of(ledger, asked.key)
    assert dropped == {asked.key}
    assert (row["state"], row["reason"], row["attempt"]) == ("cancelled", "superseded", 0)
    assert row["lease_holder"] is None


@pytest.mark.requirement("S83")
async def test_renewing_moves_the_lease_but_not_seq(ledger: asyncpg.Pool) -> None:
    row = Row(RunState.RUNNING, 1, lapsed=True)
    await put(ledger, [row])
    started = NOW - timedelta(seconds=2)

    renewed = await claims.renew(ledger, [claims.Claim(row.key, SEQ, 1, started)])

    found = await row_of(ledger, row.key)
    assert renewed == {row.key: None}
    assert (found["state"], found["seq"], found["lease_holder"]) == ("running", SEQ, HOLDER)
    assert found["lease_until"] > NOW
    assert found["started_at"] == started


async def test_a_renewal_says_that_the_run_is_asked_to_stop(ledger: asyncpg.Pool) -> None:
    row = Row(RunState.RUNNING, 1, "cancelled", asked_to_stop=True)
    await put(ledger, [row])

    assert await claims.renew(ledger, [claims.Claim(row.key, SEQ, 1)]) == {row.key: "cancelled"}


async def test_a_renewal_does_not_wait_for_a_row_that_is_locked(ledger: asyncpg.Pool) -> None:
    locked, free = Row(RunState.RUNNING, 1), Row(RunState.RUNNING, 2)
    await put(ledger, [locked, free])
    held = [claims.Claim(row.key, SEQ, 1) for row in (locked, free)]

    async with ledger.acquire() as connection, connection.transaction():
        await connection.execute(
            "SELECT FROM runs WHERE schedule_id = $1 FOR UPDATE", locked.key.schedule_id
        )
        renewed = await claims.renew(ledger, held)

    assert set(renewed) == {free.key}
