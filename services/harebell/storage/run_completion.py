"""The next step after attempts that did not succeed: on the record and published, in one go."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TypeAlias
from uuid import UUID

import asyncpg

from harebell.contract.ids import RunKey
from harebell.contract.policy import Overlap
from harebell.contract.ticket import Ticket
from harebell.domain.overlap import next_waiting
from harebell.domain.run_states import STOPPING_REASONS, AttemptCompletion, RunState
from harebell.messaging.run_events import dead_letter_of_run
from harebell.messaging.ticket_batches import TicketHeader
from harebell.storage.publishing_transaction import PublishingTransaction
from harebell.storage.runs import claims, completion, overlap
from harebell.storage.runs.tickets import rebuild_tickets

CompletedRun: TypeAlias = tuple[Ticket, AttemptCompletion]


async def complete_and_publish(
    transaction: PublishingTransaction,
    completed: Sequence[CompletedRun],
    *,
    wakes_next: bool = True,
) -> dict[RunKey, AttemptCompletion]:
    """As the last step of the caller's transaction; of those still theirs to end, the record.

    With `waking`, those that wait for the turn of what has ended are published too.
    """
    connection = transaction.connection
    policies = {
        ticket.schedule_id: ticket.overlap for ticket, _ in completed if ticket.restricts_overlap
    }
    await overlap.lock(connection, policies)
    completed = await _heeding(connection, completed)
    moved = await completion.complete(connection, [ending for _, ending in completed])
    mine = [(ticket, ending) for ticket, ending in completed if ending.key in moved]
    retries = [
        TicketHeader.of(_again(ticket, ending, moved[ending.key]))
        for ticket, ending in mine
        if ending.staged_at is not None
    ]
    woken = await wake_next(connection, policies, transaction.now()) if wakes_next else []
    letters = [
        dead_letter_of_run(ticket, ending, await completion.attempt_history(connection, ending.key))
        for ticket, ending in mine
        if ending.state is RunState.DEAD
    ]
    await transaction.publish([*retries, *woken], letters)
    return {ending.key: ending for _, ending in mine}


async def _heeding(
    connection: asyncpg.Connection, ended: Sequence[CompletedRun]
) -> Sequence[CompletedRun]:
    """Orders to stop that their executors have not heard of: no attempt follows a cancel."""
    if all(ending.state is not RunState.RETRYING for _, ending in ended):
        return ended
    asked = await completion.find_stop_requests(connection, [ending for _, ending in ended])
    return [(ticket, _heeded(ending, asked.get(ending.key))) for ticket, ending in ended]


def _heeded(ending: AttemptCompletion, reason: str | None) -> AttemptCompletion:
    is_stopped = ending.state is RunState.RETRYING and reason in STOPPING_REASONS
    return ending.stopped(str(reason)) if is_stopped else ending


async def cancel_unstarted_and_publish(
    transaction: PublishingTransaction, claimed: Mapping[claims.Claim, Ticket]
) -> set[RunKey]:
    """Likewise of runs that were asked to stop before they started."""
    connection = transaction.connection
    policies = {
        each.schedule_id: each.overlap for each in claimed.values() if each.restricts_overlap
    }
    await overlap.lock(connection, policies)
    dropped = await claims.cancel_unstarted(connection, list(claimed))
    await transaction.publish(await wake_next(connection, policies, transaction.now()))
    return dropped


async def wake_next(
    connection: asyncpg.Connection,
    policies: Mapping[UUID, Overlap],
    now: datetime,
    *,
    min_ticket_age: float = 0,
) -> list[TicketHeader]:
    """New tickets for those whose turn it is now. The caller holds the locks, and publishes.

    They are due now, so that to have waited does not count as lateness. `unless_within`: so many
    seconds since their last ticket.
    """
    if not policies:
        return []
    await overlap.delete_stale_slots(connection, policies)
    chosen = {
        RunKey(moment, schedule)
        for schedule, runs in (await overlap.open_run_rows(connection, policies)).items()
        if (moment := next_waiting(policies[schedule], [run.slot for run in runs])) is not None
    }
    woken = await overlap.wake(connection, chosen, min_ticket_age=min_ticket_age)
    tickets = await rebuild_tickets(connection, sorted(woken))
    return [TicketHeader.of(ticket.model_copy(update={"due_at": now})) for ticket in tickets]


def _again(ticket: Ticket, ending: AttemptCompletion, seq: int) -> Ticket:
    again = {"seq": seq, "due_at": ending.next_attempt_at, "placed": None}
    return ticket.model_copy(update=again)
