"""Completion of attempts with everything that follows: retries, dead letters and woken runs."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from typing import TypeAlias
from uuid import UUID

import asyncpg

from harebell.contract.ids import RunKey
from harebell.contract.policy import Overlap
from harebell.contract.ticket import Ticket
from harebell.domain.concurrency import Label
from harebell.domain.concurrency import next_waiting as next_waiting_for_label
from harebell.domain.overlap import next_waiting
from harebell.domain.run_states import STOPPING_REASONS, AttemptCompletion, RunState
from harebell.messaging.run_events import dead_letter_of_run
from harebell.messaging.ticket_batches import TicketHeader
from harebell.storage.publishing_transaction import PublishingTransaction
from harebell.storage.runs import claims, completion, label_slots, overlap
from harebell.storage.runs.tickets import rebuild_tickets

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


def labels_of(tickets: Iterable[Ticket]) -> set[Label]:
    """Return the concurrency labels of the tickets."""
    return {
        Label(ticket.run_spec.tenant, concurrency.label)
        for ticket in tickets
        if (concurrency := ticket.run_spec.concurrency) is not None
    }


def _policies_of(tickets: Iterable[Ticket]) -> dict[UUID, Overlap]:
    return {ticket.schedule_id: ticket.overlap for ticket in tickets if ticket.restricts_overlap}


async def wake_next(
    connection: asyncpg.Connection,
    policies: Mapping[UUID, Overlap],
    now: datetime,
    *,
    min_ticket_age: float = 0,
) -> list[TicketHeader]:
    """Wake the next waiting run of each schedule and return its new ticket.

    The caller has the lock of each schedule and publishes the tickets.
    A ticket is due now, so that the wait does not count as lateness.
    Skip a run whose last ticket is younger than `min_ticket_age` seconds.
    """
    if not policies:
        return []
    await overlap.delete_stale_slots(connection, policies)
    rows = await overlap.open_run_rows(connection, policies)
    chosen = {
        RunKey(time, schedule)
        for schedule, runs in rows.items()
        if (time := next_waiting(policies[schedule], [run.slot for run in runs])) is not None
    }
    woken = await overlap.wake(connection, chosen, min_ticket_age=min_ticket_age)
    tickets = await rebuild_tickets(connection, sorted(woken))
    return [TicketHeader.of(ticket.model_copy(update={"due_at": now})) for ticket in tickets]


async def wake_labels(
    connection: asyncpg.Connection,
    labels: Collection[Label],
    now: datetime,
    *,
    with_waiting: bool = False,
) -> list[TicketHeader]:
    """Wake the waiting runs for which their labels have slots, and return their new tickets.

    The caller has the lock of each label and publishes the tickets.
    A ticket is due now, so that the wait does not count as lateness.
    With `with_waiting`, also delete the rows of waiting runs that have ended.
    """
    if not labels:
        return []
    await label_slots.delete_stale(connection, labels, with_waiting=with_waiting)
    slots = await label_slots.read_slots(connection, labels)
    chosen = {key for of_label in slots.values() for key in next_waiting_for_label(of_label)}
    woken = await label_slots.wake(connection, chosen)
    tickets = await rebuild_tickets(connection, woken)
    return [TicketHeader.of(_woken_ticket(ticket, now)) for ticket in tickets]


def _woken_ticket(ticket: Ticket, now: datetime) -> Ticket:
    """Return a ticket that is due now. Its run had a start time of the rate limit before its wait.

    The admission before the start still counts the start.
    """
    has_reserved = ticket.run_spec.rate_limit is not None
    return ticket.model_copy(update={"due_at": now, "reserved": has_reserved or None})


def _retry_ticket(ticket: Ticket, completed: AttemptCompletion, seq: int) -> Ticket:
    changes = {
        "seq": seq,
        "due_at": completed.next_attempt_at,
        "reserved": None,
        "previous_trace": completed.trace,
    }
    return ticket.model_copy(update=changes)
