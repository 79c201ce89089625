"""Integration tests of claims that need a slot: a locked row delays only its own tenant."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from tests.integration.executor.environment import (
    FaultyPool,
    claim_key,
    open_faulty_pool,
    with_tenant,
)

from harebell.contract.policy import Overlap
from harebell.executor.claiming.overlap import OverlapClaimer

pytestmark = [pytest.mark.postgres, pytest.mark.requirement("P6")]

MAX_CLAIM = 2.0  # seconds; a statement of another transaction waits up to 3 s for a locked row


@pytest.fixture
async def ledger(database_url: str) -> AsyncIterator[FaultyPool]:
    async with open_faulty_pool(database_url) as opened:
        yield opened


@pytest.mark.unshifted
async def test_claim_with_a_slot_waits_for_no_locked_row_of_another_tenant(
    ledger: FaultyPool,
) -> None:
    skip = {"overlap": Overlap.SKIP}
    locked, *others = [each.model_copy(update=skip) for each in ledger.tickets(3)]
    tickets = [locked, *(with_tenant(each, "umbrella") for each in others)]
    await ledger.stage(tickets)
    by_key = {claim_key(each): each for each in tickets}
    claimer = OverlapClaimer(
        pool=ledger.pool, publisher=ledger.publisher, clock=ledger.clock, holder="executor-1"
    )

    async with ledger.locked(locked), asyncio.timeout(MAX_CLAIM):
        claimed, decided = await claimer.claim(by_key)
    later, _ = await claimer.claim({claim_key(locked): locked})

    assert set(claimed) == {each.run_key for each in others}
    assert not decided
    assert set(later) == {locked.run_key}
