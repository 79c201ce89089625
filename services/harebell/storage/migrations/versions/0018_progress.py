"""Runs: the progress that tasks and workers report."""

from alembic import op

revision = "0018"
down_revision = "0017"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("ALTER TABLE runs ADD COLUMN progress jsonb, ADD COLUMN progress_at timestamptz")


def downgrade() -> None:
    op.execute("ALTER TABLE runs DROP COLUMN progress, DROP COLUMN progress_at")
