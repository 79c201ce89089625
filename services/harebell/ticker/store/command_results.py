"""Command results, the schedules of bulk operations, and the start of the history of a tenant."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final, TypeAlias
from uuid import UUID

import asyncpg

CommandKey: TypeAlias = tuple[str, str, int]  # tenant, request id, index in the message


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandResultStatements:
    """The statements of this module."""

    load_responses: str
    record_responses: str
    load_bulk_operation: str
    record_bulk_operation: str
    load_removed_until: str


STATEMENTS: Final = CommandResultStatements(
    load_responses="""
SELECT c.tenant, c.request_id, c.item_index, c.response
FROM unnest($1::text[], $2::text[], $3::int[]) AS t(tenant, request_id, item_index)
JOIN command_results c USING (tenant, request_id, item_index)
""",
    # A conflict fails the transaction, because another ticker has just applied the command.
    record_responses="""
INSERT INTO command_results (tenant, request_id, item_index, response, created_at)
SELECT t.*, now() FROM unnest($1::text[], $2::text[], $3::int[], $4::json[]) AS t
""",
    load_bulk_operation="SELECT schedule_ids FROM bulk_operations WHERE tenant = $1 AND id = $2",
    record_bulk_operation="""
INSERT INTO bulk_operations (tenant, id, schedule_ids, verb, created_at)
VALUES ($1, $2, $3, $4, now())
""",
    load_removed_until="""
SELECT removed_until FROM history_marks WHERE tenant IN ($1, '') ORDER BY tenant DESC LIMIT 1
""",
)


async def load_responses(
    connection: asyncpg.Connection, commands: Sequence[CommandKey]
) -> dict[CommandKey, bytes]:
    """Return the first response of each repeated command, as JSON."""
    if not commands:
        return {}
    columns = map(list, zip(*commands, strict=True))
    rows = await connection.fetch(STATEMENTS.load_responses, *columns)
    return {
        (row["tenant"], row["request_id"], row["item_index"]): row["response"].encode()
        for row in rows
    }


async def record_responses(
    connection: asyncpg.Connection, responses: Mapping[CommandKey, bytes]
) -> None:
    """Store the responses. Raise `UniqueViolationError` if a command has a response."""
    if responses:
        tenants, request_ids, indexes = map(list, zip(*responses, strict=True))
        bodies = [response.decode() for response in responses.values()]
        await connection.execute(STATEMENTS.record_responses, tenants, request_ids, indexes, bodies)


async def load_bulk_operation(
    connection: asyncpg.Connection, tenant: str, bulk_operation_id: str
) -> list[UUID] | None:
    """Return the schedules that a bulk operation changed, or None if it does not exist."""
    found: list[UUID] | None = await connection.fetchval(
        STATEMENTS.load_bulk_operation, tenant, bulk_operation_id
    )
    return found


async def record_bulk_operation(
    connection: asyncpg.Connection,
    tenant: str,
    bulk_operation_id: str,
    *,
    changed: Sequence[UUID],
    verb: str,
) -> None:
    """Store the schedules that a bulk operation changed."""
    await connection.execute(
        STATEMENTS.record_bulk_operation, tenant, bulk_operation_id, changed, verb
    )


async def load_removed_until(connection: asyncpg.Connection, tenant: str) -> datetime | None:
    """Return the time before which the retention has removed runs of the tenant, or None."""
    at: datetime | None = await connection.fetchval(STATEMENTS.load_removed_until, tenant)
    return at
