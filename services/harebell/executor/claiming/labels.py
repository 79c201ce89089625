"""The decisions about due runs with a concurrency label, in the transaction of their claim."""

from collections import defaultdict
from dataclasses import replace

import asyncpg

from harebell.domain.concurrency import Label, LabelRole, LabelSlot, decide_all
from harebell.executor.claiming.claimer import TicketsByKey
from harebell.storage.runs import label_slots
from harebell.storage.runs.label_slots import LabelDecision


async def decide_labels(
    connection: asyncpg.Connection, tickets: TicketsByKey
) -> list[LabelDecision]:
    """Return the decisions about the runs that have a label. The caller has their locks.

    Every row permits a claim, apart from its label. If a run has waited, it keeps its place.
    """
    candidates: dict[Label, list[LabelSlot]] = defaultdict(list)
    for key, ticket in tickets.items():
        if (concurrency := ticket.run_spec.concurrency) is not None:
            label = Label(ticket.run_spec.tenant, concurrency.label)
            slot = LabelSlot(key=key.key, due_at=ticket.due_at, limit=concurrency.limit)
            candidates[label].append(slot)
    if not candidates:
        return []
    slots = await label_slots.read_slots(connection, candidates)
    keys = [each.key for of_label in candidates.values() for each in of_label]
    places = await label_slots.places(connection, keys)
    decisions = []
    for label, due in candidates.items():
        current = slots.get(label, [])
        reserved = {each.key for each in current if each.is_occupied}
        placed = [
            replace(
                each,
                due_at=places.get(each.key, each.due_at),
                role=LabelRole.RESERVED if each.key in reserved else LabelRole.WAITING,
            )
            for each in due
        ]
        admitted = decide_all(current, placed)
        for each in placed:
            role = LabelRole.RUNNING if each.key in admitted else LabelRole.WAITING
            decisions.append(LabelDecision(slot=replace(each, role=role), label=label))
    return decisions
