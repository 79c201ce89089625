"""The one home of making a ticket again: from its row in the ledger and its version's work."""

from collections.abc import Sequence
from typing import Final

import asyncpg

from harebell.contract.amqp_names import Lane
from harebell.contract.ids import RunKey
from harebell.contract.json_codec import decode_trusted
from harebell.contract.ticket import RunSpec, Ticket
from harebell.domain.run_states import Reason

_ROWS: Final = """
SELECT run.scheduled_for, run.schedule_id, coalesce(run.next_attempt_at, run.due_at) AS due_at,
    run.expires_at, run.seq, run.version, run.replay_number, run.pool, run.lane, run.priority,
    run.override, run.reason, written.run_spec
FROM unnest($1::timestamptz[], $2::uuid[]) WITH ORDINALITY
    AS wanted (scheduled_for, schedule_id, place)
JOIN runs AS run
    ON run.scheduled_for = wanted.scheduled_for AND run.schedule_id = wanted.schedule_id
JOIN schedule_versions AS written
    ON written.schedule_id = run.schedule_id AND written.version = run.version
ORDER BY wanted.place
"""


async def rebuild_tickets(connection: asyncpg.Connection, keys: Sequence[RunKey]) -> list[Ticket]:
    """In the order of `keys`, each with the `seq` of its row now; a key without a row has none.

    Whatever the row's state is: whoever asks has locked the rows that it means to publish.
    """
    rows = await connection.fetch(
        _ROWS, [key.scheduled_for for key in keys], [key.schedule_id for key in keys]
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
        reserved=True if row["reason"] == Reason.RATE_LIMITED else None,
        run_spec=RunSpec.model_validate_json(row["run_spec"]).with_override(override),
    )
