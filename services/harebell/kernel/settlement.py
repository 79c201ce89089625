"""The next step after attempts that did not succeed: on the record and published, in one go."""

from collections.abc import Sequence
from typing import TypeAlias

import asyncpg

from harebell.contract.identity import RunKey
from harebell.contract.ticket import Ticket
from harebell.kernel.amqp.bundle import waiting
from harebell.kernel.amqp.publish import Outgoing, Publisher
from harebell.kernel.amqp.stories import dead_message
from harebell.kernel.clock import Clock
from harebell.kernel.db.ledger import endings
from harebell.kernel.ledger import Ending, RunState
from harebell.kernel.routing import Routed

Ended: TypeAlias = tuple[Ticket, Ending]


async def end_and_publish(
    connection: asyncpg.Connection, publisher: Publisher, clock: Clock, ended: Sequence[Ended]
) -> set[RunKey]:
    """Within the caller's transaction, as its last step; which of them were still theirs to end.

    A crash before the commit leaves messages without authority, never authority without messages.
    """
    moved = await endings.end(connection, [ending for _, ending in ended])
    mine = [(ticket, ending) for ticket, ending in ended if ending.key in moved]
    retries = [
        Routed.of(_again(ticket, ending, moved[ending.key]))
        for ticket, ending in mine
        if ending.staged_at is not None
    ]
    messages: list[Outgoing] = [*waiting(retries, clock.now())]
    for ticket, ending in mine:
        if ending.state is RunState.DEAD:
            story = await endings.story(connection, ending.key)
            messages.append(dead_message(ticket, ending, story))
    await publisher.publish_all(messages)
    return set(moved)


def _again(ticket: Ticket, ending: Ending, seq: int) -> Ticket:
    return ticket.model_copy(update={"seq": seq, "due_at": ending.next_attempt_at})
