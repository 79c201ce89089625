"""Imports: the storage of exported dead letters by the rules of incoming dead letters."""

import asyncpg

from harebell.contract.accepted_commands import AcceptedCommands
from harebell.contract.commands import DeadLetterImport
from harebell.contract.dead_letter import ExportedDeadLetter
from harebell.contract.errors import InvalidInput, NotAllowed
from harebell.dlq_inspector.model.dead_letter import DeadLetter, import_dead_letter
from harebell.dlq_inspector.model.results import ResultStatus
from harebell.dlq_inspector.replay import Results
from harebell.dlq_inspector.store import dead_letters


async def import_dead_letters(
    connection: asyncpg.Connection, commands: AcceptedCommands, command: DeadLetterImport
) -> Results:
    """Store all dead letters of the command, or none. Return the result for each id.

    Raise `Rejected` for an invalid dead letter or for one of another tenant.
    """
    imported = [
        _parse(exported, index, commands.tenant)
        for index, exported in enumerate(command.dead_letters)
    ]
    new = await dead_letters.insert_dead_letters(connection, imported)
    new_ids = {dead_letter.id for dead_letter in new}
    return {
        str(dead_letter.id): (
            ResultStatus.IMPORTED if dead_letter.id in new_ids else ResultStatus.ALREADY_PRESENT
        ).value
        for dead_letter in imported
    }


def _parse(exported: ExportedDeadLetter, index: int, tenant: str) -> DeadLetter:
    field = f"dead_letters[{index}]"
    try:
        dead_letter = import_dead_letter(exported)
    except InvalidInput as error:
        error.field = f"{field}.{error.field or 'payload'}"
        raise
    if dead_letter.tenant != tenant:
        reason = f"The dead letter must belong to the tenant {tenant}, not {dead_letter.tenant}."
        raise NotAllowed(reason, field=field, code="foreign_tenant")
    return dead_letter
