"""Tickets from the database: the row of a run and the run spec of its version."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import asyncpg

from harebell.contract.amqp_names import Lane
from harebell.contract.ids import RunKey
from harebell.contract.json_codec import decode_trusted
from harebell.contract.ticket import RunSpec, Ticket
from harebell.domain.run_states import Reason


@dataclass(frozen=True, slots=True, kw_only=True)
class TicketStatements:
    """The SQL texts of this module, which the in-memory ledger of the tests also answers."""

    rebuild: str


STATEMENTS: Final = TicketStatements(
    # Only a run with an attempt has a previous attempt, so most runs need no search for one.
    rebuild="""
SELECT run.scheduled_for, run.schedule_id, coalesce(run.next_attempt_at, run.due_at) AS due_at,
    run.expires_at, run.seq, run.version, run.replay_number, run.pool, run.lane, run.priority,
    run.override, run.reason, version.run_spec,
    CASE WHEN run.attempt > 0 OR run.replay_number > 0 THEN (
        SELECT attempt.trace FROM attempts AS attempt
        WHERE attempt.scheduled_for = run.scheduled_for AND attempt.schedule_id = run.schedule_id
        ORDER BY attempt.replay_number DESC, attempt.number DESC LIMIT 1
    ) END AS previous_trace
FROM unnest($1::timestamptz[], $2::uuid[]) WITH ORDINALITY
    AS requested (scheduled_for, schedule_id, k)
JOIN runs AS run
    ON run.scheduled_for = requested.scheduled_for AND run.schedule_id = requested.schedule_id
JOIN schedule_versions AS version
    ON version.schedule_id = run.schedule_id AND version.version = run.version
ORDER BY requested.k
""",
)


async def rebuild_tickets(connection: asyncpg.Connection, keys: Sequence[RunKey]) -> list[Ticket]:
    """Return the tickets with the present `seq` of their rows, in the order of the keys.

    Omit a key without a row.
    The function reads rows in every state, because the caller has locked the rows to publish.
    """
    if not keys:
        return []
    rows = await connection.fetch(
        STATEMENTS.rebuild, [key.scheduled_for for key in keys], [key.schedule_id for key in keys]
    )
    return [_ticket(row) for row in rows]


def _ticket(row: asyncpg.Record) -> Ticket:
    override = None if row["override"] is None else decode_trusted(row["override"].encode())
    return Ticket(
        schedule_id=row["schedule_id"],
        scheduled_for=row["scheduled_for"],
        due_at=row["due_at"],
        expires_at=row["expires_at"],
        seq=row["seq"],
        version=row["version"],
        replay_number=row["replay_number"],
        pool=row["pool"],
        lane=Lane(row["lane"]),
        priority=row["priority"],
        override=override,
        previous_trace=row["previous_trace"],
        reserved=True if row["reason"] == Reason.RATE_LIMITED else None,
        run_spec=RunSpec.model_validate_json(row["run_spec"]).with_override(override),
    )
