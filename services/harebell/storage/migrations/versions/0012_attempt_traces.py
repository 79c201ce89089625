"""Attempts: the trace context of the span, to which the span of the next attempt links."""

from alembic import op

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("ALTER TABLE attempts ADD COLUMN trace text")


def downgrade() -> None:
    op.execute("ALTER TABLE attempts DROP COLUMN trace")
