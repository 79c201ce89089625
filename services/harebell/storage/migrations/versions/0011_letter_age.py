"""The oldest letters are found without a look at the others."""

from alembic import op

from harebell.storage.migrations.concurrent_index import index_concurrently

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None

_INDEXES = {"dead_letters_age": "dead_letters (dead_at)"}


def upgrade() -> None:
    index_concurrently(op, _INDEXES)


def downgrade() -> None:
    op.execute("DROP INDEX dead_letters_age")
