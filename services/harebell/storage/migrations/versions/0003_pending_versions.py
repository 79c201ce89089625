"""An index of the pending versions of each schedule, of which there are at most 20."""

from alembic import op

from harebell.storage.migrations.concurrent_index import index_concurrently

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    index_concurrently(
        op,
        {
            "schedule_versions_pending": (
                "schedule_versions (schedule_id, effective_at) WHERE status = 'pending'"
            )
        },
    )


def downgrade() -> None:
    op.execute("DROP INDEX schedule_versions_pending")
