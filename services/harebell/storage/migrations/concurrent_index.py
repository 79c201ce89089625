"""Indexes on tables that are in use: made while others write, and whole or not at all."""

from collections.abc import Mapping
from types import ModuleType


def index_concurrently(op: ModuleType, indexes: Mapping[str, str]) -> None:
    """By name: what follows `ON`. `op` is Alembic's, in a migration.

    Each waits for the transactions that are under way, however long that takes, and nobody waits
    for it. One that was broken off is left invalid: it is dropped and made again. So the migration
    must do nothing else: what it has done before is committed.
    """
    with op.get_context().autocommit_block():
        op.execute("SET lock_timeout = 0")
        for name, what in indexes.items():
            op.execute(f"DROP INDEX CONCURRENTLY IF EXISTS {name}")
            op.execute(f"CREATE INDEX CONCURRENTLY {name} ON {what}")
        op.execute("RESET lock_timeout")
