"""Staging: one scheduled time of one schedule is one run, for all versions and repetitions."""

import asyncio
from datetime import timedelta

import asyncpg
import pytest
from tests.contract.ledger_rows import (
    NOW,
    PLACEMENT,
    SEQ,
    Row,
    insert_rows,
    new_run,
    row_of,
    run_keys,
    states_and_seqs,
)

from harebell.contract.ids import RunKey
from harebell.domain.run_states import RESTAGEABLE, NewRun, Reason, RunState, SkippedRange
from harebell.storage.runs import recovery, staging

NEWER = PLACEMENT._replace(version=PLACEMENT.version + 1, pool="reports", lane="high", priority=9)


async def staged(ledger: asyncpg.Pool, runs: list[NewRun]) -> dict[RunKey, int]:
    async with ledger.acquire() as connection:
        return await staging.stage(connection, runs)


async def test_new_run_has_seq_1(ledger: asyncpg.Pool) -> None:
    (key,) = run_keys(1)

    assert await staged(ledger, [new_run(key)]) == {key: 1}
    assert await states_and_seqs(ledger) == {key: (RunState.STAGED, 1)}


@pytest.mark.requirement("S39", "S54", "S87", "S93", "ASK-7")
async def test_concurrent_tickers_stage_each_run_once(
    ledger: asyncpg.Pool,
) -> None:
    keys = run_keys(20)

    made = await asyncio.gather(
        *(
            staged(ledger, [new_run(key) for key in keys[start:] + keys[:start]])
            for start in range(10)
        )
    )

    assert sorted(key for each in made for key in each) == keys
    assert set((await states_and_seqs(ledger)).values()) == {(RunState.STAGED, 1)}


@pytest.mark.parametrize("reason", sorted(RESTAGEABLE))
async def test_unstaged_run_is_staged_again_with_its_new_values(
    ledger: asyncpg.Pool, reason: Reason
) -> None:
    row = Row(RunState.CANCELLED, 0, reason)
    await insert_rows(ledger, [row])
    due = NOW + timedelta(seconds=3)
    again = NewRun(row.key, NEWER, due, due + timedelta(hours=1))

    assert await staged(ledger, [again]) == {row.key: SEQ + 1}

    found = await row_of(ledger, row.key)
    assert (found["version"], found["pool"], found["lane"], found["priority"]) == (
        NEWER.version,
        NEWER.pool,
        NEWER.lane,
        NEWER.priority,
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
async def test_stage_changes_no_other_run(ledger: asyncpg.Pool, row: Row) -> None:
    await insert_rows(ledger, [row])
    before = await row_of(ledger, row.key)

    assert await staged(ledger, [new_run(row.key, NEWER)]) == {}
    assert await row_of(ledger, row.key) == before


async def test_skipped_range_is_one_row_with_its_count(
    ledger: asyncpg.Pool,
) -> None:
    (key,) = run_keys(1)
    until = NOW + timedelta(hours=5)

    async with ledger.acquire() as connection:
        for _ in range(2):
            await staging.skip(
                connection,
                [
                    SkippedRange(
                        key=key, placement=PLACEMENT, until=until, count=6, reason=Reason.MISSED
                    )
                ],
            )

    row = await row_of(ledger, key)
    assert (row["state"], row["reason"], row["seq"]) == ("skipped", "missed", 1)
    assert (row["range_until"], row["range_count"]) == (until, 6)


async def test_skipped_range_is_recorded_when_its_first_run_is_unstaged(
    ledger: asyncpg.Pool,
) -> None:
    row = Row(RunState.CANCELLED, 0, Reason.PAUSED)
    await insert_rows(ledger, [row])
    until = NOW + timedelta(hours=5)

    async with ledger.acquire() as connection:
        await staging.skip(
            connection,
            [
                SkippedRange(
                    key=row.key, placement=PLACEMENT, until=until, count=6, reason=Reason.MISSED
                )
            ],
        )

    found = await row_of(ledger, row.key)
    assert (found["state"], found["reason"], found["seq"]) == ("skipped", "missed", SEQ + 1)
    assert (found["range_until"], found["range_count"]) == (until, 6)


async def test_skip_never_replaces_a_staged_run(ledger: asyncpg.Pool) -> None:
    row = Row(RunState.STAGED)
    await insert_rows(ledger, [row])

    async with ledger.acquire() as connection:
        await staging.skip(
            connection,
            [
                SkippedRange(
                    key=row.key, placement=PLACEMENT, until=NOW, count=1, reason=Reason.PAUSED
                )
            ],
        )

    assert await states_and_seqs(ledger) == {row.key: (RunState.STAGED, SEQ)}


async def test_request_stop_changes_only_running_runs_and_can_be_withdrawn(
    ledger: asyncpg.Pool,
) -> None:
    running, waiting = Row(RunState.RUNNING, 1), Row(RunState.STAGED)
    await insert_rows(ledger, [running, waiting])
    statement = "SELECT schedule_id, reason FROM runs WHERE stop_requested_at IS NOT NULL"

    async with ledger.acquire() as connection:
        await staging.request_stop(
            connection, {running.key: Reason.PAUSED, waiting.key: Reason.PAUSED}
        )
        requested = await connection.fetch(statement)
        await staging.request_stop(connection, {running.key: None})
        left = await connection.fetch(statement)

    assert [(row["schedule_id"], row["reason"]) for row in requested] == [
        (running.key.schedule_id, "paused")
    ]
    assert left == []
    assert set((await states_and_seqs(ledger)).values()) == {
        (RunState.RUNNING, SEQ),
        (RunState.STAGED, SEQ),
    }


async def test_mark_restaged_keeps_the_seq(ledger: asyncpg.Pool) -> None:
    rows = [Row(RunState.STAGED), Row(RunState.RETRYING, 1), Row(RunState.RUNNING, 1)]
    await insert_rows(ledger, rows)

    async with ledger.acquire() as connection:
        again = await recovery.mark_restaged(connection, [row.key for row in rows])

    assert set(again) == {rows[0].key, rows[1].key}
    assert {seq for _, seq in (await states_and_seqs(ledger)).values()} == {SEQ}


@pytest.mark.parametrize(
    ("origin", "expires"), [(None, True), ("trigger", True), ("backfill", False)]
)
async def test_moved_run_has_the_expiry_of_its_new_version_except_after_a_backfill(
    ledger: asyncpg.Pool, origin: str | None, *, expires: bool
) -> None:
    (key,) = run_keys(1)
    await staged(ledger, [new_run(key)._replace(origin=origin)])
    until = NOW + timedelta(minutes=1)

    async with ledger.acquire() as connection:
        await staging.move_to_version(connection, [new_run(key, NEWER)._replace(expires_at=until)])

    found = await row_of(ledger, key)
    assert (found["version"], found["seq"]) == (NEWER.version, 2)
    assert found["expires_at"] == (until if expires else None)
