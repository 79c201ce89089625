"""Completions and what they publish: no retry after a stop request or with an old token."""

from typing import Any, cast

import asyncpg
import pytest
from tests.contract.ledger_rows import Row, completion_of, insert_rows, row_of
from tests.contract.overlap_claimers import ticket
from tests.fakes.publisher import FakePublisher

from harebell.contract.policy import Overlap
from harebell.domain.run_states import AttemptCompletion, Reason, RunState
from harebell.ledger.publishing_transaction import publishing_transaction
from harebell.ledger.run_completion import complete_and_publish
from harebell.runtime.clock import Clock
from harebell.storage.engine import database_time

RUNNING = Row(RunState.RUNNING, 1)
STOPPED = Row(RunState.RUNNING, 1, Reason.CANCELLED, has_stop_request=True)
PAUSED = Row(RunState.RUNNING, 1, Reason.PAUSED, has_stop_request=True)


async def complete(
    ledger: asyncpg.Pool, row: Row, completion: AttemptCompletion
) -> tuple[FakePublisher, dict[Any, AttemptCompletion]]:
    publisher = FakePublisher()
    clock = Clock(lambda: database_time(ledger))
    await clock.refresh()
    run = ticket(row.key, Overlap.ALLOW)
    async with publishing_transaction(ledger, publisher, clock) as transaction:
        recorded = await complete_and_publish(transaction, [(run, completion)])
    return publisher, cast("Any", recorded)


async def test_retry_has_a_ticket_with_the_new_seq(ledger: asyncpg.Pool) -> None:
    await insert_rows(ledger, [RUNNING])
    retry = completion_of(RUNNING.key, RunState.RETRYING)

    publisher, _ = await complete(ledger, RUNNING, retry)

    row = await row_of(ledger, RUNNING.key)
    assert row["state"] == RunState.RETRYING
    assert [(t.seq, t.due_at) for t in publisher.tickets] == [(row["seq"], retry.next_attempt_at)]


async def test_cancelled_run_has_no_retry(ledger: asyncpg.Pool) -> None:
    await insert_rows(ledger, [STOPPED])

    publisher, recorded = await complete(
        ledger, STOPPED, completion_of(STOPPED.key, RunState.RETRYING)
    )

    row = await row_of(ledger, STOPPED.key)
    assert (row["state"], row["reason"]) == (RunState.CANCELLED, Reason.CANCELLED)
    assert recorded[STOPPED.key].state is RunState.CANCELLED
    assert publisher.published == []


async def test_run_of_a_paused_schedule_keeps_its_retry(ledger: asyncpg.Pool) -> None:
    await insert_rows(ledger, [PAUSED])

    publisher, _ = await complete(ledger, PAUSED, completion_of(PAUSED.key, RunState.RETRYING))

    assert (await row_of(ledger, PAUSED.key))["state"] == RunState.RETRYING
    assert len(publisher.tickets) == 1


@pytest.mark.parametrize("state", [RunState.RETRYING, RunState.DEAD])
async def test_completion_with_an_old_token_publishes_nothing(
    ledger: asyncpg.Pool, state: RunState
) -> None:
    await insert_rows(ledger, [RUNNING])
    completion = completion_of(RUNNING.key, state)._replace(token=1)

    publisher, recorded = await complete(ledger, RUNNING, completion)

    assert recorded == {}
    assert publisher.published == []


async def test_dead_run_has_a_dead_letter(ledger: asyncpg.Pool) -> None:
    await insert_rows(ledger, [RUNNING])

    publisher, _ = await complete(ledger, RUNNING, completion_of(RUNNING.key, RunState.DEAD))

    assert [message.exchange for message in publisher.published] == ["harebell.dead"]
