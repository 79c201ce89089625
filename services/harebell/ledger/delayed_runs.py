"""Delayed starts: the new rows and tickets of runs that must start later."""

from collections.abc import Iterable
from datetime import datetime

from harebell.contract.ids import RunKey
from harebell.contract.ticket import Ticket
from harebell.contract.types import ceil_ms
from harebell.domain.run_states import Reason
from harebell.ledger.publishing_transaction import PublishingTransaction
from harebell.messaging.ticket_batches import TicketHeader
from harebell.messaging.topology.delay_queues import LONGEST_DELAY, Tier, route
from harebell.storage.runs.delays import DelayedRun, delay_runs

Delay = tuple[Ticket, int, datetime]  # the sequence number of the row, and the time of the start


async def delay_and_publish(
    transaction: PublishingTransaction, delays: Iterable[Delay], reason: Reason
) -> set[RunKey]:
    """Delay the runs, publish their new tickets and return the delayed runs.

    The publication is the last step of the transaction. Omit a run whose row has changed.
    """
    now, has_reservation = transaction.now(), reason is Reason.RATE_LIMITED
    runs = [(ticket, _delayed_run(ticket, seq, at, now=now)) for ticket, seq, at in delays]
    moved = await delay_runs(transaction.connection, [run for _, run in runs], reason)
    await transaction.publish(
        TicketHeader.of(
            ticket.model_copy(
                update={
                    "seq": moved[run.key],
                    "due_at": ceil_ms(run.next_attempt_at),
                    "reserved": True if has_reservation else None,
                }
            )
        )
        for ticket, run in runs
        if run.key in moved and not run.is_cold
    )
    return set(moved)


def _delayed_run(ticket: Ticket, seq: int, at: datetime, *, now: datetime) -> DelayedRun:
    is_cold = route(at, now, horizon=LONGEST_DELAY).tier is Tier.COLD
    return DelayedRun(key=ticket.run_key, seq=seq, next_attempt_at=at, is_cold=is_cold)
