"""A delivery is done when the last of its tickets has been published on."""

import asyncio

import pytest
from tests.fakes.tickets import crowd

from harebell.contract.errors import BrokerUnavailable
from harebell.dispatcher.release.pending_acks import PendingAcks
from harebell.messaging.acknowledge import ABANDONED, DONE


async def test_a_delivery_is_done_with_its_last_ticket() -> None:
    receipts, tickets = PendingAcks(), crowd(3)
    receipt, _ = receipts.register(tickets)

    receipts.published(tickets[:2])
    before = receipt.outcome.done()
    receipts.published(tickets[2:])

    assert not before
    assert receipt.outcome.result() == DONE
    assert len(receipts) == 0


async def test_a_delivery_without_tickets_is_done() -> None:
    receipt, fresh = PendingAcks().register([])

    assert receipt.outcome.result() == DONE
    assert fresh == []


async def test_a_repeat_of_what_is_in_hand_is_done_with_the_first() -> None:
    receipts, tickets = PendingAcks(), crowd(2)
    first, fresh = receipts.register(tickets)
    second, again = receipts.register(tickets)

    receipts.published(tickets)

    assert (fresh, again) == (tickets, [])
    assert first.outcome.result() == second.outcome.result() == DONE


async def test_a_ticket_twice_in_one_bundle_is_one_ticket() -> None:
    receipts, tickets = PendingAcks(), crowd(1)
    receipt, fresh = receipts.register(tickets * 2)

    receipts.published(tickets)

    assert fresh == tickets
    assert receipt.outcome.result() == DONE


async def test_what_has_left_may_come_again() -> None:
    receipts, tickets = PendingAcks(), crowd(2)
    receipts.register(tickets)
    receipts.published(tickets)

    _, fresh = receipts.register(tickets)

    assert fresh == tickets


async def test_one_abandoned_ticket_abandons_the_delivery() -> None:
    receipts, tickets = PendingAcks(), crowd(2)
    receipt, _ = receipts.register(tickets)

    receipts.abandon(tickets[:1])
    receipts.published(tickets[1:])

    assert receipt.outcome.result() == ABANDONED


async def test_a_failure_reaches_whoever_handles_the_delivery() -> None:
    receipts, tickets = PendingAcks(), crowd(2)
    receipt, _ = receipts.register(tickets)

    receipts.fail(tickets, BrokerUnavailable("gone"))

    with pytest.raises(BrokerUnavailable):
        await receipt.outcome


async def test_tickets_whose_session_was_lost_still_leave() -> None:
    receipts, tickets = PendingAcks(), crowd(2)
    receipt, _ = receipts.register(tickets)
    handler = asyncio.ensure_future(receipt.outcome)
    handler.cancel()

    receipts.published(tickets)

    assert receipt.outcome.cancelled()
    assert len(receipts) == 0
