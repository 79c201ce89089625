"""TODO: describe this module."""

from collections.abc import Mapping, Sequence
from typing import Final, TypeAlias
from uuid import UUID

import asyncpg

CommandKey: TypeAlias = tuple[str, str, int]  # tenant, request id, place in its message
_KEEP_RECEIPT: Final = """
INSERT INTO bulk_operations (tenant, id, schedule_ids, verb, created_at)
VALUES ($1, $2, $3, $4, now())
"""
_RECEIPT: Final = "SELECT schedule_ids FROM bulk_operations WHERE tenant = $1 AND id = $2"
_ANSWERED: Final = """
SELECT c.tenant, c.request_id, c.item_index, c.response
FROM unnest($1::text[], $2::text[], $3::int[]) AS t(tenant, request_id, item_index)
JOIN command_results c USING (tenant, request_id, item_index)
"""
_RECORD: Final = """
INSERT INTO command_results (tenant, request_id, item_index, response, created_at)
SELECT t.*, now() FROM unnest($1::text[], $2::text[], $3::int[], $4::json[]) AS t
"""  # a conflict fails the transaction: another ticker has just applied that command


async def load_responses(
    connection: asyncpg.Connection, commands: Sequence[CommandKey]
) -> dict[CommandKey, bytes]:
    """What repeated commands were answered the first time, as JSON."""
    if not commands:
        return {}
    rows = await connection.fetch(_ANSWERED, *map(list, zip(*commands, strict=True)))
    return {
        (row["tenant"], row["request_id"], row["item_index"]): row["response"].encode()
        for row in rows
    }


async def record_responses(
    connection: asyncpg.Connection, answers: Mapping[CommandKey, bytes]
) -> None:
    if answers:
        tenants, requests, items = map(list, zip(*answers, strict=True))
        texts = [answer.decode() for answer in answers.values()]
        await connection.execute(_RECORD, tenants, requests, items, texts)


async def load_bulk_operation(
    connection: asyncpg.Connection, tenant: str, name: str
) -> list[UUID] | None:
    """Which schedules a selecting command changed; None: there is no such receipt."""
    found: list[UUID] | None = await connection.fetchval(_RECEIPT, tenant, name)
    return found


async def record_bulk_operation(
    connection: asyncpg.Connection, tenant: str, name: str, changed: Sequence[UUID], verb: str
) -> None:
    await connection.execute(_KEEP_RECEIPT, tenant, name, changed, verb)
