"""Indexes for migrations of tables that services write."""

from collections.abc import Mapping
from types import ModuleType

from alembic.operations import Operations


def index_concurrently(
    op: ModuleType | Operations, indexes: Mapping[str, str], *, is_unique: bool = False
) -> None:
    """Create each index, given by name and the text after `ON`, while services write its table.

    An index waits for the present transactions without limit and delays no other statement.
    A broken creation leaves an invalid index, which a repeated call drops and creates again.
    The migration must do nothing else, because this function commits all earlier statements.
    """
    kind = "UNIQUE INDEX" if is_unique else "INDEX"
    with op.get_context().autocommit_block():
        op.execute("SET lock_timeout = 0")
        for name, definition in indexes.items():
            op.execute(f"DROP INDEX CONCURRENTLY IF EXISTS {name}")
            op.execute(f"CREATE {kind} CONCURRENTLY {name} ON {definition}")
        op.execute("RESET lock_timeout")
