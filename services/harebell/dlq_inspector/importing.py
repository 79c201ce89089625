"""Letters that were shown somewhere, kept here again: by the same rules as those that arrive."""

import asyncpg

from harebell.contract.changes import Change
from harebell.contract.commands import DlqImport
from harebell.contract.desk import Told
from harebell.contract.errors import Malformed, NotAllowed
from harebell.dlq_inspector import store
from harebell.dlq_inspector.core.letter import Letter, told_letter
from harebell.dlq_inspector.core.verdict import Status
from harebell.dlq_inspector.series import Results


async def keep_told(connection: asyncpg.Connection, change: Change, command: DlqImport) -> Results:
    """All or none. Raises `Rejected` for what is no letter of the tenant."""
    letters = [_read(told, place, change.tenant) for place, told in enumerate(command.letters)]
    kept = {letter.id for letter in await store.keep(connection, letters)}
    return {
        str(letter.id): (Status.IMPORTED if letter.id in kept else Status.PRESENT).value
        for letter in letters
    }


def _read(told: Told, place: int, tenant: str) -> Letter:
    try:
        letter = told_letter(told)
    except Malformed as error:
        error.field = f"letters[{place}].{error.field or 'story'}"
        raise
    if letter.tenant != tenant:
        reason = f"is a letter of {letter.tenant}"
        raise NotAllowed(reason, field=f"letters[{place}]", code="foreign_tenant")
    return letter
