"""Letters that were shown somewhere, kept here again: by the same rules as those that arrive."""

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
    connection: asyncpg.Connection, change: AcceptedCommands, command: DeadLetterImport
) -> Results:
    """All or none. Raises `Rejected` for what is no letter of the tenant."""
    letters = [_read(told, place, change.tenant) for place, told in enumerate(command.dead_letters)]
    kept = {letter.id for letter in await dead_letters.insert_dead_letters(connection, letters)}
    return {
        str(letter.id): (
            ResultStatus.IMPORTED if letter.id in kept else ResultStatus.ALREADY_PRESENT
        ).value
        for letter in letters
    }


def _read(told: ExportedDeadLetter, place: int, tenant: str) -> DeadLetter:
    try:
        letter = import_dead_letter(told)
    except InvalidInput as error:
        error.field = f"dead_letters[{place}].{error.field or 'payload'}"
        raise
    if letter.tenant != tenant:
        reason = f"is a letter of {letter.tenant}"
        raise NotAllowed(reason, field=f"dead_letters[{place}]", code="foreign_tenant")
    return letter
