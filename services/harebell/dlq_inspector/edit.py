"""Editing a dead letter: a copy in its place, whose replay calls what a person has written."""

from typing import Final

import asyncpg
import orjson

from harebell.contract.accepted_commands import AcceptedCommands
from harebell.contract.commands import DeadLetterEdit
from harebell.contract.ids import edited_dead_letter_id
from harebell.contract.ticket import OVERRIDE_TARGET
from harebell.dlq_inspector.model.results import DeadLetterState, ResultStatus
from harebell.dlq_inspector.replay import Results
from harebell.dlq_inspector.store import dead_letters

# The story is told with the new target; that of the letter itself stays as it was.
_COPY: Final = f"""
INSERT INTO dead_letters (id, tenant, kind, schedule_id, scheduled_for, replay_number, key, reason,
    error_code, error, attempts, dead_at, state, payload, root_id, group_id,
    target, edited_from, edited_at, edited_by, edit_note)
SELECT $2, tenant, kind, schedule_id, scheduled_for, replay_number, key, reason,
    error_code, error, attempts, dead_at, '{DeadLetterState.OPEN}',
    jsonb_set(payload, '{{{OVERRIDE_TARGET}}}', $3::text::jsonb), root_id, group_id,
    $3::text::json, id, now(), $4, $5
FROM dead_letters WHERE id = $1
"""  # noqa: S608  # constants
_REPLACED: Final = (
    f"UPDATE dead_letters SET state = '{DeadLetterState.SUPERSEDED}' WHERE id = $1"  # a constant  # noqa: S608  # constants only
)


async def edit_dead_letter(
    connection: asyncpg.Connection, change: AcceptedCommands, command: DeadLetterEdit
) -> Results:
    """In one transaction. The id of the copy is derived: the same edit again finds it."""
    target = orjson.dumps(command.model_dump(mode="json", by_alias=True, exclude_none=True)[OVERRIDE_TARGET])
    copy = edited_dead_letter_id(command.id, target)
    held = await dead_letters.lock_dead_letters(connection, change.tenant, [command.id, copy])
    if copy in held:
        return {str(copy): ResultStatus.EDITED.value}
    letter = held.get(command.id)
    if letter is None:
        return {str(command.id): ResultStatus.NOT_FOUND.value}
    if not letter.is_replayable:
        return {str(command.id): ResultStatus.NOT_EDITABLE.value}
    written = (target.decode(), change.actor, command.note)
    await connection.execute(_COPY, command.id, copy, *written)
    await connection.execute(_REPLACED, command.id)
    return {str(copy): ResultStatus.EDITED.value}
