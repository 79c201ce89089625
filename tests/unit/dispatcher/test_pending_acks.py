"""Tests of pending acknowledgements: a delivery is done after the publish of its last ticket."""

import asyncio

import pytest
from tests.fakes.tickets import headers

from harebell.contract.errors import BrokerUnavailable
from harebell.dispatcher.release.forwarder import PendingAcks
from harebell.messaging.acknowledge import ABANDONED, DONE


async def test_delivery_is_done_after_its_last_ticket() -> None:
    pending_acks, tickets = PendingAcks(), headers(3)
    pending, _ = pending_acks.register(tickets)

    pending_acks.published(tickets[:2])
    before = pending.outcome.done()
    pending_acks.published(tickets[2:])

    assert not before
    assert pending.outcome.result() == DONE
    assert len(pending_acks) == 0


async def test_delivery_without_tickets_is_done_at_once() -> None:
    pending, new = PendingAcks().register([])

    assert pending.outcome.result() == DONE
    assert new == []


async def test_repeated_delivery_is_done_together_with_the_first_one() -> None:
    pending_acks, tickets = PendingAcks(), headers(2)
    first, new = pending_acks.register(tickets)
    second, repeated = pending_acks.register(tickets)

    pending_acks.published(tickets)

    assert (new, repeated) == (tickets, [])
    assert first.outcome.result() == second.outcome.result() == DONE


async def test_repeated_ticket_of_one_delivery_is_registered_once() -> None:
    pending_acks, tickets = PendingAcks(), headers(1)
    pending, new = pending_acks.register(tickets * 2)

    pending_acks.published(tickets)

    assert new == tickets
    assert pending.outcome.result() == DONE


async def test_published_ticket_can_be_registered_again() -> None:
    pending_acks, tickets = PendingAcks(), headers(2)
    pending_acks.register(tickets)
    pending_acks.published(tickets)

    _, new = pending_acks.register(tickets)

    assert new == tickets


async def test_delivery_is_abandoned_when_one_ticket_is_abandoned() -> None:
    pending_acks, tickets = PendingAcks(), headers(2)
    pending, _ = pending_acks.register(tickets)

    pending_acks.abandon(tickets[:1])
    pending_acks.published(tickets[1:])

    assert pending.outcome.result() == ABANDONED


async def test_handler_of_the_delivery_raises_the_error_of_a_publish() -> None:
    pending_acks, tickets = PendingAcks(), headers(2)
    pending, _ = pending_acks.register(tickets)

    pending_acks.fail(tickets, BrokerUnavailable("The broker is not connected."))

    with pytest.raises(BrokerUnavailable):
        await pending.outcome


async def test_tickets_are_published_after_the_handler_was_cancelled() -> None:
    pending_acks, tickets = PendingAcks(), headers(2)
    pending, _ = pending_acks.register(tickets)
    handler = asyncio.ensure_future(pending.outcome)
    handler.cancel()

    pending_acks.published(tickets)

    assert pending.outcome.cancelled()
    assert len(pending_acks) == 0
