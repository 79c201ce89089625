"""A delivery is done when the last of its tickets has been published on."""

import asyncio

import pytest
from tests.tickets import crowd

from harebell.contract.errors import BrokerUnavailable
from harebell.dispatcher.receipts import Receipts
from harebell.kernel.amqp.consume import ABANDONED, DONE


async def test_a_delivery_is_done_with_its_last_ticket() -> None:
    receipts, tickets = Receipts(), crowd(3)
    receipt, _ = receipts.take(tickets)

    receipts.forwarded(tickets[:2])
    before = receipt.outcome.done()
    receipts.forwarded(tickets[2:])

    assert not before
    assert receipt.outcome.result() == DONE
    assert len(receipts) == 0


async def test_a_delivery_without_tickets_is_done() -> None:
    receipt, fresh = Receipts().take([])

    assert receipt.outcome.result() == DONE
    assert fresh == []


async def test_a_repeat_of_what_is_in_hand_is_done_with_the_first() -> None:
    receipts, tickets = Receipts(), crowd(2)
    first, fresh = receipts.take(tickets)
    second, again = receipts.take(tickets)

    receipts.forwarded(tickets)

    assert (fresh, again) == (tickets, [])
    assert first.outcome.result() == second.outcome.result() == DONE


async def test_a_ticket_twice_in_one_bundle_is_one_ticket() -> None:
    receipts, tickets = Receipts(), crowd(1)
    receipt, fresh = receipts.take(tickets * 2)

    receipts.forwarded(tickets)

    assert fresh == tickets
    assert receipt.outcome.result() == DONE


async def test_what_has_left_may_come_again() -> None:
    receipts, tickets = Receipts(), crowd(2)
    receipts.take(tickets)
    receipts.forwarded(tickets)

    _, fresh = receipts.take(tickets)

    assert fresh == tickets


async def test_one_abandoned_ticket_abandons_the_delivery() -> None:
    receipts, tickets = Receipts(), crowd(2)
    receipt, _ = receipts.take(tickets)

    receipts.abandon(tickets[:1])
    receipts.forwarded(tickets[1:])

    assert receipt.outcome.result() == ABANDONED


async def test_a_failure_reaches_whoever_handles_the_delivery() -> None:
    receipts, tickets = Receipts(), crowd(2)
    receipt, _ = receipts.take(tickets)

    receipts.fail(tickets, BrokerUnavailable("gone"))

    with pytest.raises(BrokerUnavailable):
        await receipt.outcome


async def test_tickets_whose_session_was_lost_still_leave() -> None:
    receipts, tickets = Receipts(), crowd(2)
    receipt, _ = receipts.take(tickets)
    handler = asyncio.ensure_future(receipt.outcome)
    handler.cancel()

    receipts.forwarded(tickets)

    assert receipt.outcome.cancelled()
    assert len(receipts) == 0
