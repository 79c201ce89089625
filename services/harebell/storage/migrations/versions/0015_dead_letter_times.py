"""An index of dead letters by scheduled time, which the retention of runs reads for each day."""

from alembic import op

from harebell.storage.migrations.concurrent_index import index_concurrently

revision = "0015"
down_revision = "0014"
branch_labels = None
depends_on = None


def upgrade() -> None:
    index_concurrently(
        op,
        {"dead_letters_times": "dead_letters (scheduled_for) WHERE scheduled_for IS NOT NULL"},
    )


def downgrade() -> None:
    op.execute("DROP INDEX dead_letters_times")
