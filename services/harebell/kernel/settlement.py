"""The next step after attempts that did not succeed: on the record and published, in one go."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TypeAlias
from uuid import UUID

import asyncpg

from harebell.contract.identity import RunKey
from harebell.contract.policy import Overlap
from harebell.contract.ticket import Ticket
from harebell.kernel.amqp.stories import dead_message
from harebell.kernel.authorising import Authority
from harebell.kernel.db.ledger import claims, endings, turns
from harebell.kernel.db.tickets import tickets_for
from harebell.kernel.ledger import STOPS, Ending, RunState
from harebell.kernel.overlap import following
from harebell.kernel.routing import Routed

Ended: TypeAlias = tuple[Ticket, Ending]


async def end_and_publish(
    authority: Authority, ended: Sequence[Ended], *, waking: bool = True
) -> dict[RunKey, Ending]:
    """As the last step of the caller's transaction; of those still theirs to end, the record.

    With `waking`, those that wait for the turn of what has ended are published too.
    """
    connection = authority.connection
    policies = {ticket.schedule_id: ticket.overlap for ticket, _ in ended if ticket.takes_turns}
    await turns.lock(connection, policies)
    ended = await _heeding(connection, ended)
    moved = await endings.end(connection, [ending for _, ending in ended])
    mine = [(ticket, ending) for ticket, ending in ended if ending.key in moved]
    retries = [
        Routed.of(_again(ticket, ending, moved[ending.key]))
        for ticket, ending in mine
        if ending.staged_at is not None
    ]
    woken = await pass_on(connection, policies, authority.now()) if waking else []
    letters = [
        dead_message(ticket, ending, await endings.story(connection, ending.key))
        for ticket, ending in mine
        if ending.state is RunState.DEAD
    ]
    await authority.publish([*retries, *woken], letters)
    return {ending.key: ending for _, ending in mine}


async def _heeding(connection: asyncpg.Connection, ended: Sequence[Ended]) -> Sequence[Ended]:
    """Orders to stop that their executors have not heard of: no attempt follows a cancel."""
    if all(ending.state is not RunState.RETRYING for _, ending in ended):
        return ended
    asked = await endings.asked_to_stop(connection, [ending for _, ending in ended])
    return [(ticket, _heeded(ending, asked.get(ending.key))) for ticket, ending in ended]


def _heeded(ending: Ending, reason: str | None) -> Ending:
    is_stopped = ending.state is RunState.RETRYING and reason in STOPS
    return ending.stopped(str(reason)) if is_stopped else ending


async def drop_and_publish(authority: Authority, held: Mapping[claims.Held, Ticket]) -> set[RunKey]:
    """Likewise of runs that were asked to stop before they started."""
    connection = authority.connection
    policies = {each.schedule_id: each.overlap for each in held.values() if each.takes_turns}
    await turns.lock(connection, policies)
    dropped = await claims.drop(connection, list(held))
    await authority.publish(await pass_on(connection, policies, authority.now()))
    return dropped


async def pass_on(
    connection: asyncpg.Connection,
    policies: Mapping[UUID, Overlap],
    now: datetime,
    *,
    unless_within: float = 0,
) -> list[Routed]:
    """New tickets for those whose turn it is now. The caller holds the locks, and publishes.

    They are due now, so that to have waited does not count as lateness. `unless_within`: so many
    seconds since their last ticket.
    """
    if not policies:
        return []
    await turns.forget(connection, policies)
    chosen = {
        RunKey(moment, schedule)
        for schedule, runs in (await turns.standing(connection, policies)).items()
        if (moment := following(policies[schedule], [run.turn for run in runs])) is not None
    }
    woken = await turns.wake(connection, chosen, unless_within=unless_within)
    tickets = await tickets_for(connection, sorted(woken))
    return [Routed.of(ticket.model_copy(update={"due_at": now})) for ticket in tickets]


def _again(ticket: Ticket, ending: Ending, seq: int) -> Ticket:
    again = {"seq": seq, "due_at": ending.next_attempt_at, "placed": None}
    return ticket.model_copy(update=again)
