"""The letters of a group are found, and those that have none yet."""

from alembic import op

from harebell.storage.migrations.concurrent_index import index_concurrently

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None

_INDEXES = {
    "dead_letters_group": "dead_letters (group_id, state, dead_at DESC, id)",
    "dead_letters_ungrouped": "dead_letters (id) WHERE group_id IS NULL",
}


def upgrade() -> None:
    index_concurrently(op, _INDEXES)


def downgrade() -> None:
    op.execute("DROP INDEX dead_letters_group, dead_letters_ungrouped")
