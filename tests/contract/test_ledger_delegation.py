"""Delegated runs: only a worker of the tenant with the token of the claim has the lease."""

import json
from datetime import timedelta
from typing import Any, Final

import asyncpg
import pytest
from tests.contract.ledger_rows import (
    HOLDER,
    NOW,
    SEQ,
    VERSION,
    Row,
    completion_of,
    insert_rows,
    row_of,
    states_and_seqs,
)

from harebell.contract.ids import RunKey
from harebell.domain.run_states import WORKER, RunState
from harebell.storage.runs import claims, completion, delegation, recovery
from harebell.storage.runs.delegation import DelegatedRun, ReportRef

ROW: Final = Row(RunState.RUNNING, 1)
STOPPED: Final = Row(RunState.RUNNING, 1, "cancelled", has_stop_request=True)
REF: Final = ReportRef(ROW.key, SEQ, "acme")
HEARTBEAT: Final = 60.0  # seconds
DAY: Final = 86_400.0  # seconds

pytestmark = pytest.mark.requirement("S59")


def delegated(
    key: RunKey, *, token: int = SEQ, heartbeat: float = HEARTBEAT, max_duration: float = DAY
) -> DelegatedRun:
    return DelegatedRun(
        key=key, token=token, started_at=NOW, heartbeat=heartbeat, max_duration=max_duration
    )


async def lease_left(ledger: asyncpg.Pool, key: RunKey) -> timedelta:
    left: timedelta = (await row_of(ledger, key))["lease_until"] - await ledger.fetchval(
        "SELECT now()"
    )
    return left


async def test_delegate_gives_the_lease_to_the_worker_and_keeps_state_and_token(
    ledger: asyncpg.Pool,
) -> None:
    await insert_rows(ledger, [ROW])

    assert await delegation.delegate(ledger, [delegated(ROW.key)]) == {ROW.key}

    row = await row_of(ledger, ROW.key)
    assert await states_and_seqs(ledger) == {ROW.key: (RunState.RUNNING, SEQ)}
    assert (row["lease_holder"], row["lease_seconds"], row["started_at"]) == (WORKER, 60.0, NOW)
    assert timedelta(seconds=50) < await lease_left(ledger, ROW.key) <= timedelta(seconds=60)
    assert row["delegated_until"] - row["lease_until"] == timedelta(seconds=DAY - HEARTBEAT)


@pytest.mark.parametrize("token", [SEQ - 1, SEQ + 1])
async def test_delegate_changes_nothing_with_a_wrong_token(
    ledger: asyncpg.Pool, token: int
) -> None:
    await insert_rows(ledger, [ROW])

    assert await delegation.delegate(ledger, [delegated(ROW.key, token=token)]) == set()
    assert (await row_of(ledger, ROW.key))["lease_holder"] == HOLDER


async def test_heartbeat_renews_the_lease_and_returns_the_stop_request(
    ledger: asyncpg.Pool,
) -> None:
    await insert_rows(ledger, [ROW, STOPPED])
    await delegation.delegate(ledger, [delegated(row.key) for row in (ROW, STOPPED)])
    stopped = REF._replace(key=STOPPED.key)

    renewed = await delegation.renew(ledger, [REF, stopped, REF])

    assert {ref: each.stop_reason for ref, each in renewed.items()} == {
        REF: None,
        stopped: "cancelled",
    }
    assert renewed[REF].lease_until == (await row_of(ledger, ROW.key))["lease_until"]
    assert await states_and_seqs(ledger) == {
        row.key: (RunState.RUNNING, SEQ) for row in (ROW, STOPPED)
    }


async def test_heartbeat_never_renews_beyond_the_longest_duration(ledger: asyncpg.Pool) -> None:
    await insert_rows(ledger, [ROW])
    await delegation.delegate(ledger, [delegated(ROW.key, max_duration=40.0)])

    renewed = await delegation.renew(ledger, [REF])

    assert renewed[REF].lease_until == (await row_of(ledger, ROW.key))["delegated_until"]
    assert await lease_left(ledger, ROW.key) <= timedelta(seconds=40)


@pytest.mark.parametrize(
    "ref",
    [
        REF._replace(token=SEQ - 1),
        REF._replace(token=SEQ + 1),
        REF._replace(tenant="umbrella"),
    ],
)
async def test_heartbeat_renews_nothing_for_another_token_or_tenant(
    ledger: asyncpg.Pool, ref: ReportRef
) -> None:
    await insert_rows(ledger, [ROW])
    await delegation.delegate(ledger, [delegated(ROW.key)])
    before = await row_of(ledger, ROW.key)

    assert await delegation.renew(ledger, [ref]) == {}
    assert (await row_of(ledger, ROW.key))["lease_until"] == before["lease_until"]


async def test_heartbeat_renews_no_lease_of_an_executor(ledger: asyncpg.Pool) -> None:
    await insert_rows(ledger, [ROW])

    assert await delegation.renew(ledger, [REF]) == {}


async def test_find_returns_the_row_and_the_end_of_its_last_attempt(ledger: asyncpg.Pool) -> None:
    await insert_rows(ledger, [ROW, STOPPED])
    await delegation.delegate(ledger, [delegated(ROW.key)])
    stopped = REF._replace(key=STOPPED.key)
    await completion.complete(ledger, [completion_of(STOPPED.key, RunState.DEAD)])

    found = await delegation.find(ledger, [REF, stopped, REF._replace(tenant="umbrella")])

    assert set(found) == {REF, stopped}
    running, ended = found[REF], found[stopped]
    assert (running.state, running.token, running.lease_holder) == ("running", SEQ, WORKER)
    assert (running.started_at, running.last_outcome) == (NOW, None)
    assert (ended.state, ended.token) == ("dead", SEQ + 1)
    assert (ended.last_outcome, ended.last_code) == ("failed", "http_503")


@pytest.mark.parametrize(
    ("read_for", "is_locked"), [(0.0, False), (HEARTBEAT, False), (HEARTBEAT + 1, True)]
)
async def test_lease_of_a_worker_expires_only_after_heartbeats_were_read_for_its_length(
    ledger: asyncpg.Pool, read_for: float, *, is_locked: bool
) -> None:
    await insert_rows(ledger, [ROW])
    # The longest duration has passed, so a renewal ends the lease in the past.
    await delegation.delegate(ledger, [delegated(ROW.key, max_duration=-1.0)])
    await delegation.renew(ledger, [REF])

    async with ledger.acquire() as connection, connection.transaction():
        found = await recovery.lock_expired_leases(
            connection, [WORKER], by_time=True, reports_read_for=read_for
        )

    assert [each.key for each in found] == [ROW.key] * is_locked


async def test_valid_lease_of_a_worker_is_not_locked(ledger: asyncpg.Pool) -> None:
    await insert_rows(ledger, [ROW])
    await delegation.delegate(ledger, [delegated(ROW.key)])

    async with ledger.acquire() as connection, connection.transaction():
        found = await recovery.lock_expired_leases(
            connection, [HOLDER, WORKER], by_time=True, reports_read_for=DAY
        )

    assert found == []


async def test_executor_completes_its_delegated_run_when_the_call_fails(
    ledger: asyncpg.Pool,
) -> None:
    await insert_rows(ledger, [ROW])
    await delegation.delegate(ledger, [delegated(ROW.key)])
    claim = claims.Claim(ROW.key, SEQ, 1, NOW)

    assert await claims.renew(ledger, [claim]) == {ROW.key: None}
    failed = completion_of(ROW.key, RunState.RETRYING)
    assert await completion.complete(ledger, [failed]) == {ROW.key: SEQ + 1}
    assert await delegation.renew(ledger, [REF]) == {}


@pytest.mark.requirement("S71")
async def test_report_keeps_the_fields_that_it_omits(ledger: asyncpg.Pool) -> None:
    await insert_rows(ledger, [ROW])
    await delegation.delegate(ledger, [delegated(ROW.key)])
    before = await row_of(ledger, ROW.key)

    await delegation.renew(ledger, [REF], {REF: {"percent": 10.0, "checkpoint": {"page": 3}}})
    first = await row_of(ledger, ROW.key)
    await delegation.renew(ledger, [REF], {REF: {"percent": 20.0, "message": "orders"}})
    second = await row_of(ledger, ROW.key)
    await delegation.renew(ledger, [REF])
    third = await row_of(ledger, ROW.key)

    assert (before["progress"], before["progress_at"]) == (None, None)
    assert progress_of(first) == {"percent": 10.0, "checkpoint": {"page": 3}}
    assert progress_of(second) == {
        "percent": 20.0,
        "message": "orders",
        "checkpoint": {"page": 3},
    }
    assert progress_of(third) == progress_of(second)
    assert second["progress_at"] > first["progress_at"]
    assert third["progress_at"] == second["progress_at"]


@pytest.mark.requirement("S71")
async def test_progress_travels_with_the_renewal_of_an_executor_and_reaches_the_next_claim(
    ledger: asyncpg.Pool,
) -> None:
    await insert_rows(ledger, [ROW, STOPPED])
    held = [claims.Claim(row.key, SEQ, 1, NOW) for row in (ROW, STOPPED)]

    renewed = await claims.renew(ledger, held, {ROW.key: {"checkpoint": [1, "zw\u00f6lf"]}})
    stale = claims.Claim(ROW.key, SEQ - 1, 1, NOW)
    assert await claims.renew(ledger, [stale], {ROW.key: {"checkpoint": "of another"}}) == {}
    seqs = await completion.complete(ledger, [completion_of(ROW.key, RunState.RETRYING)])
    ticket = claims.ClaimKey(
        key=ROW.key,
        seq=seqs[ROW.key],
        version=VERSION,
        override=None,
        lease=15,
        due_at=NOW + timedelta(seconds=30),
    )
    claim = (await claims.claim(ledger, [ticket], HOLDER))[ROW.key]

    assert renewed == {ROW.key: None, STOPPED.key: "cancelled"}
    assert (await row_of(ledger, STOPPED.key))["progress"] is None
    assert claim.checkpoint is not None
    assert json.loads(claim.checkpoint) == [1, "zw\u00f6lf"]


@pytest.mark.requirement("S71")
async def test_claim_of_a_run_without_a_report_has_no_checkpoint(ledger: asyncpg.Pool) -> None:
    staged = Row(RunState.STAGED)
    await insert_rows(ledger, [staged])
    ticket = claims.ClaimKey(
        key=staged.key, seq=SEQ, version=VERSION, override=None, lease=15, due_at=NOW
    )

    assert (await claims.claim(ledger, [ticket], HOLDER))[staged.key].checkpoint is None


def progress_of(row: Any) -> Any:
    """Return the column as a value, which asyncpg returns as a text."""
    found = row["progress"]
    return json.loads(found) if isinstance(found, str) else found
