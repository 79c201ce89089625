"""Edits: an open copy of a dead letter whose replay calls another target.

A user edits the redacted target. Each `***` of the edit keeps the literal secret of the run.
"""

import asyncpg
import orjson

from harebell.contract.accepted_commands import AcceptedCommands
from harebell.contract.commands import DeadLetterEdit
from harebell.contract.ids import edited_dead_letter_id
from harebell.contract.redaction import redact_target, redacted_fields, restore_literals
from harebell.dlq_inspector.model.results import ResultStatus
from harebell.dlq_inspector.replay import Results
from harebell.dlq_inspector.store import dead_letters


async def edit_dead_letter(
    connection: asyncpg.Connection, commands: AcceptedCommands, command: DeadLetterEdit
) -> Results:
    """Insert the edited copy within the transaction of the caller. Return the result.

    The id of the copy is derived, so a repeated command finds the copy. Raise `InvalidInput` for
    `***` in a field where the run has no literal secret.
    """
    body = command.model_dump(mode="json", by_alias=True, exclude_none=True)
    target = orjson.dumps(body["target"])
    copy = edited_dead_letter_id(command.id, target)
    locked = await dead_letters.lock_dead_letters(connection, commands.tenant, [command.id, copy])
    if copy in locked:
        return {str(copy): ResultStatus.EDITED.value}
    original = locked.get(command.id)
    if original is None:
        return {str(command.id): ResultStatus.NOT_FOUND.value}
    if not original.is_replayable:
        return {str(command.id): ResultStatus.NOT_EDITABLE.value}
    whole = body["target"]
    if redacted_fields(whole):
        kept = await dead_letters.find_target(connection, commands.tenant, original.id)
        whole = restore_literals(whole, kept, "target")
    edit = dead_letters.Edit(
        tenant=commands.tenant,
        original=original.id,
        copy=copy,
        target=orjson.dumps(whole).decode(),
        shown=orjson.dumps(redact_target(whole)).decode(),
        actor=commands.actor,
        note=command.note,
    )
    await dead_letters.insert_edited_copy(connection, edit)
    return {str(copy): ResultStatus.EDITED.value}
