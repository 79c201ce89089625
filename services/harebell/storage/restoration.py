"""The step of a restoration that makes every later fencing token higher than all earlier ones."""

from typing import Final

from harebell.storage.engine import connect, translate_db_errors

# A restored database does not know how often it was restored before, so the base follows the time.
# Its unit of 15 minutes keeps it below its bound until 2083.
BEGIN_EPOCH: Final = """
UPDATE ledger_epoch
SET base = greatest(base + 1, floor(extract(epoch FROM now() - '2026-01-01Z') / 900)::integer)
"""


async def begin_epoch(database_url: str) -> int:
    """Begin an epoch above all earlier ones and return it. The user must own the database.

    Raise `DatabaseUnavailable`.
    """
    with translate_db_errors():
        connection = await connect(database_url)
        try:
            await connection.execute(BEGIN_EPOCH)
            epoch: int = await connection.fetchval("SELECT harebell_epoch()")
        finally:
            await connection.close()
    return epoch
