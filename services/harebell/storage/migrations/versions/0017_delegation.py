"""Runs: the latest end of the lease of a worker that completes a delegated run."""

from alembic import op

revision = "0017"
down_revision = "0016"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("ALTER TABLE runs ADD COLUMN delegated_until timestamptz")


def downgrade() -> None:
    op.execute("ALTER TABLE runs DROP COLUMN delegated_until")
