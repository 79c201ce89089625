"""The end of an attempt, with everything that follows: a retry, a dead letter, woken runs."""

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias
from uuid import UUID

import asyncpg

from harebell.contract.ids import RunKey
from harebell.contract.policy import Overlap
from harebell.contract.ticket import Ticket
from harebell.domain.run_states import STOPPING_REASONS, AttemptCompletion, RunState
from harebell.ledger.publishing_transaction import PublishingTransaction
from harebell.ledger.woken_runs import labels_of, wake_labels, wake_next
from harebell.messaging.run_events import dead_letter_of_run
from harebell.messaging.ticket_batches import TicketHeader
from harebell.storage.runs import claims, completion, overlap

CompletedRun: TypeAlias = tuple[Ticket, AttemptCompletion]


async def complete_and_publish(
    transaction: PublishingTransaction,
    completed: Sequence[CompletedRun],
    *,
    wakes_next: bool = True,
) -> dict[RunKey, AttemptCompletion]:
    """Record the completions, publish what follows and return the recorded completions.

    The call is the last step before the commit.
    Retries and dead letters follow, and with `wakes_next` also the runs that waited for a slot.
    Omit a completion whose fencing token is no longer valid.
    """
    connection = transaction.connection
    tickets = [ticket for ticket, _ in completed]
    policies, labels = _policies_of(tickets), labels_of(tickets)
    await overlap.lock(connection, policies, labels)
    completed = await _apply_stop_requests(connection, completed)
    seqs = await completion.complete(connection, [each for _, each in completed])
    recorded = [(ticket, each) for ticket, each in completed if each.key in seqs]
    retries = [
        TicketHeader.of(_retry_ticket(ticket, each, seqs[each.key]))
        for ticket, each in recorded
        if each.staged_at is not None
    ]
    woken: list[TicketHeader] = []
    if wakes_next:
        woken += await wake_next(connection, policies, transaction.now())
        woken += await wake_labels(connection, labels, transaction.now())
    dead_letters = [
        dead_letter_of_run(ticket, each, await completion.attempt_history(connection, each.key))
        for ticket, each in recorded
        if each.state is RunState.DEAD
    ]
    await transaction.publish([*retries, *woken], dead_letters)
    return {each.key: each for _, each in recorded}


async def _apply_stop_requests(
    connection: asyncpg.Connection, completed: Sequence[CompletedRun]
) -> Sequence[CompletedRun]:
    """Cancel retries with a stop request that the executor has not received."""
    if all(each.state is not RunState.RETRYING for _, each in completed):
        return completed
    reasons = await completion.find_stop_requests(connection, [each for _, each in completed])
    return [(ticket, _stopped(each, reasons.get(each.key))) for ticket, each in completed]


def _stopped(completed: AttemptCompletion, reason: str | None) -> AttemptCompletion:
    is_stopped = completed.state is RunState.RETRYING and reason in STOPPING_REASONS
    return completed.stopped(str(reason)) if is_stopped else completed


async def cancel_unstarted_and_publish(
    transaction: PublishingTransaction, claimed: Mapping[claims.Claim, Ticket]
) -> set[RunKey]:
    """Cancel claimed runs with a stop request and publish the runs that waited for a slot.

    The call is the last step before the commit.
    """
    connection = transaction.connection
    policies, labels = _policies_of(claimed.values()), labels_of(claimed.values())
    await overlap.lock(connection, policies, labels)
    cancelled = await claims.cancel_unstarted(connection, list(claimed))
    woken = await wake_next(connection, policies, transaction.now())
    woken += await wake_labels(connection, labels, transaction.now())
    await transaction.publish(woken)
    return cancelled


def _policies_of(tickets: Iterable[Ticket]) -> dict[UUID, Overlap]:
    return {ticket.schedule_id: ticket.overlap for ticket in tickets if ticket.restricts_overlap}


def _retry_ticket(ticket: Ticket, completed: AttemptCompletion, seq: int) -> Ticket:
    changes = {
        "seq": seq,
        "due_at": completed.next_attempt_at,
        "reserved": None,
        "previous_trace": completed.trace,
    }
    return ticket.model_copy(update=changes)
