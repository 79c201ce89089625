"""Imports: the storage of exported dead letters by the rules of incoming dead letters."""

from datetime import datetime

import asyncpg

from harebell.contract.accepted_commands import AcceptedCommands
from harebell.contract.commands import DeadLetterImport
from harebell.contract.dead_letter import ExportedDeadLetter
from harebell.contract.errors import InvalidInput, NotAllowed
from harebell.dlq_inspector.ingest import report_conflicts
from harebell.dlq_inspector.model.dead_letter import DeadLetter, import_dead_letter
from harebell.dlq_inspector.model.imports import names_foreign_run, to_insert
from harebell.dlq_inspector.model.results import ResultStatus
from harebell.dlq_inspector.replay import Results
from harebell.dlq_inspector.store import dead_letters


async def import_dead_letters(
    connection: asyncpg.Connection,
    commands: AcceptedCommands,
    command: DeadLetterImport,
    *,
    now: datetime,
) -> Results:
    """Store all dead letters of the command, or none. Return the result for each stored id.

    Raise `Rejected` for an invalid dead letter, for one of another tenant, or for one that died
    after `now`.
    """
    tenant = commands.tenant
    imported = [
        _parse(exported, index, tenant=tenant, now=now)
        for index, exported in enumerate(command.dead_letters)
    ]
    runs = [each.run for each in imported if each.run is not None]
    known = await dead_letters.find_runs(connection, tenant, runs)
    ids = {id_ for each in imported for id_ in (each.id, each.older_id)}
    present = await dead_letters.find_present(connection, tenant, ids)
    chosen = [to_insert(each, known, present) for each in imported]
    inserted = await dead_letters.insert_dead_letters(
        connection, [each for each in chosen if each is not None]
    )
    report_conflicts(
        [*inserted.conflicts, *(each for each in imported if names_foreign_run(each, known))]
    )
    new_ids = {each.id for each in inserted.new}
    return {
        str((stored or original).id): (
            ResultStatus.IMPORTED
            if stored is not None and stored.id in new_ids
            else ResultStatus.ALREADY_PRESENT
        ).value
        for original, stored in zip(imported, chosen, strict=True)
    }


def _parse(exported: ExportedDeadLetter, index: int, *, tenant: str, now: datetime) -> DeadLetter:
    field = f"dead_letters[{index}]"
    try:
        dead_letter = import_dead_letter(exported, now)
    except InvalidInput as error:
        error.field = f"{field}.{error.field or 'payload'}"
        raise
    if dead_letter.tenant != tenant:
        reason = f"The dead letter must belong to the tenant {tenant}, not {dead_letter.tenant}."
        raise NotAllowed(reason, field=field, code="foreign_tenant")
    return dead_letter
