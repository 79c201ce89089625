"""Staging: one instant of one schedule is one run, whatever the version and however often."""

import asyncio
from datetime import timedelta

import asyncpg
import pytest
from tests.contract.ledger_rows import NOW, PLACE, SEQ, Row, crowd, owed, put, row_of, seqs

from harebell.contract.ids import RunKey
from harebell.domain.run_states import RESTAGEABLE, NewRun, Reason, RunState, SkippedRange
from harebell.storage.runs import recovery, staging

NEWER = PLACE._replace(version=PLACE.version + 1, pool="reports", lane="high", priority=9)


async def staged(ledger: asyncpg.Pool, runs: list[NewRun]) -> dict[RunKey, int]:
    async with ledger.acquire() as connection:
        return await staging.stage(connection, runs)


async def test_a_run_comes_to_be_with_seq_1(ledger: asyncpg.Pool) -> None:
    (key,) = crowd(1)

    assert await staged(ledger, [owed(key)]) == {key: 1}
    assert await seqs(ledger) == {key: (RunState.STAGED, 1)}


@pytest.mark.requirement("S39", "S54", "S87", "S93", "ASK-7")
async def test_tickers_that_stage_the_same_runs_make_each_once(
    ledger: asyncpg.Pool,
) -> None:
    keys = crowd(20)

    made = await asyncio.gather(
        *(staged(ledger, [owed(key) for key in keys[turn:] + keys[:turn]]) for turn in range(10))
    )

    assert sorted(key for each in made for key in each) == keys
    assert set((await seqs(ledger)).values()) == {(RunState.STAGED, 1)}


@pytest.mark.parametrize("reason", sorted(RESTAGEABLE))
async def test_what_was_superseded_or_paused_is_owed_again_with_what_it_owes_now(
    ledger: asyncpg.Pool, reason: Reason
) -> None:
    row = Row(RunState.CANCELLED, 0, reason)
    await put(ledger, [row])
    due = NOW + timedelta(seconds=3)
    again = NewRun(row.key, NEWER, due, due + timedelta(hours=1))

    assert await staged(ledger, [again]) == {row.key: SEQ + 1}

    found = await row_of(ledger, row.key)
    assert (found["version"], found["pool"], found["lane"], found["priority"]) == (
        *(NEWER.version, NEWER.pool, NEWER.lane, NEWER.priority),
    )
    assert (found["due_at"], found["expires_at"]) == (again.due_at, again.expires_at)
    assert found["reason"] is found["outcome"] is found["finished_at"] is None
    assert (found["replay_number"], found["attempt"]) == (0, 0)


@pytest.mark.parametrize(
    "row",
    [
        Row(RunState.CANCELLED, 0, Reason.REPLACED),
        Row(RunState.CANCELLED, 1, Reason.SUPERSEDED),
        Row(RunState.CANCELLED, 1, Reason.PAUSED),
        Row(RunState.SKIPPED, 0, Reason.PAUSED),
        Row(RunState.SUCCEEDED, 1),
        Row(RunState.STAGED),
    ],
    ids=lambda row: f"{row.state} {row.reason} {row.attempt}",
)
async def test_everything_else_keeps_what_became_of_it(ledger: asyncpg.Pool, row: Row) -> None:
    await put(ledger, [row])
    before = await row_of(ledger, row.key)

    assert await staged(ledger, [owed(row.key, NEWER)]) == {}
    assert await row_of(ledger, row.key) == before


async def test_a_stretch_of_skipped_instants_is_one_row_with_its_count(
    ledger: asyncpg.Pool,
) -> None:
    (key,) = crowd(1)
    until = NOW + timedelta(hours=5)

    async with ledger.acquire() as connection:
        for _ in range(2):
            await staging.skip(
                connection,
                [
                    SkippedRange(
                        key=key, placement=PLACE, until=until, count=6, reason=Reason.MISSED
                    )
                ],
            )

    row = await row_of(ledger, key)
    assert (row["state"], row["reason"], row["seq"]) == ("skipped", "catch_up", 1)
    assert (row["range_until"], row["range_count"]) == (until, 6)


async def test_a_stretch_that_begins_where_a_pause_withdrew_a_run_is_on_the_record(
    ledger: asyncpg.Pool,
) -> None:
    row = Row(RunState.CANCELLED, 0, Reason.PAUSED)
    await put(ledger, [row])
    until = NOW + timedelta(hours=5)

    async with ledger.acquire() as connection:
        await staging.skip(
            connection,
            [
                SkippedRange(
                    key=row.key, placement=PLACE, until=until, count=6, reason=Reason.MISSED
                )
            ],
        )

    found = await row_of(ledger, row.key)
    assert (found["state"], found["reason"], found["seq"]) == ("skipped", "catch_up", SEQ + 1)
    assert (found["range_until"], found["range_count"]) == (until, 6)


async def test_a_skip_never_takes_the_place_of_a_run(ledger: asyncpg.Pool) -> None:
    row = Row(RunState.STAGED)
    await put(ledger, [row])

    async with ledger.acquire() as connection:
        await staging.skip(
            connection,
            [SkippedRange(key=row.key, placement=PLACE, until=NOW, count=1, reason=Reason.PAUSED)],
        )

    assert await seqs(ledger) == {row.key: (RunState.STAGED, SEQ)}


async def test_a_stop_is_asked_of_running_runs_alone_and_can_be_taken_back(
    ledger: asyncpg.Pool,
) -> None:
    runs, waits = Row(RunState.RUNNING, 1), Row(RunState.STAGED)
    await put(ledger, [runs, waits])
    asked = "SELECT schedule_id, reason FROM runs WHERE stop_requested_at IS NOT NULL"

    async with ledger.acquire() as connection:
        await staging.request_stop(connection, {runs.key: Reason.PAUSED, waits.key: Reason.PAUSED})
        told = await connection.fetch(asked)
        await staging.request_stop(connection, {runs.key: None})
        left = await connection.fetch(asked)

    assert [(row["schedule_id"], row["reason"]) for row in told] == [
        (runs.key.schedule_id, "paused")
    ]
    assert left == []
    assert set((await seqs(ledger)).values()) == {
        (RunState.RUNNING, SEQ),
        (RunState.STAGED, SEQ),
    }


async def test_publishing_a_run_again_leaves_its_seq(ledger: asyncpg.Pool) -> None:
    rows = [Row(RunState.STAGED), Row(RunState.RETRYING, 1), Row(RunState.RUNNING, 1)]
    await put(ledger, rows)

    async with ledger.acquire() as connection:
        again = await recovery.mark_restaged(connection, [row.key for row in rows])

    assert set(again) == {rows[0].key, rows[1].key}
    assert {seq for _, seq in (await seqs(ledger)).values()} == {SEQ}


@pytest.mark.parametrize(
    ("origin", "expires"), [(None, True), ("trigger", True), ("backfill", False)]
)
async def test_a_run_that_takes_a_version_expires_as_that_says_and_what_is_backfilled_never(
    ledger: asyncpg.Pool, origin: str | None, *, expires: bool
) -> None:
    (key,) = crowd(1)
    await staged(ledger, [owed(key)._replace(origin=origin)])
    until = NOW + timedelta(minutes=1)

    async with ledger.acquire() as connection:
        await staging.move_to_version(connection, [owed(key, NEWER)._replace(expires_at=until)])

    found = await row_of(ledger, key)
    assert (found["version"], found["seq"]) == (NEWER.version, 2)
    assert found["expires_at"] == (until if expires else None)
