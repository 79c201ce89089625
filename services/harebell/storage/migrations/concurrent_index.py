"""Indexes for migrations of tables that services write."""

from collections.abc import Mapping
from types import ModuleType

from alembic.operations import Operations


def index_concurrently(
    op: ModuleType | Operations, indexes: Mapping[str, str], *, is_unique: bool = False
) -> None:
    """Create each index, given by name and the text after `ON`, while services write its table.

    This waits for the present transactions without limit and delays no other statement.
    If it breaks off, an invalid index is left, which a repeated call drops and creates again.
    Do nothing else in the migration, because this function commits all earlier statements.
    """
    kind = "UNIQUE INDEX" if is_unique else "INDEX"
    with op.get_context().autocommit_block():
        op.execute("SET lock_timeout = 0")
        for name, definition in indexes.items():
            op.execute(f"DROP INDEX CONCURRENTLY IF EXISTS {name}")
            op.execute(f"CREATE {kind} CONCURRENTLY {name} ON {definition}")
        op.execute("RESET lock_timeout")
