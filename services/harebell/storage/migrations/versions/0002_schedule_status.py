"""Counts of the ended runs of a schedule, and its last run.

A schedule that exists before this migration counts only the runs that end afterwards.
"""

from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute(
        "ALTER TABLE schedule_state ADD COLUMN executions integer NOT NULL DEFAULT 0, "
        "ADD COLUMN failures integer NOT NULL DEFAULT 0, ADD COLUMN last_run timestamptz"
    )
    op.execute("GRANT UPDATE (executions, failures) ON schedule_state TO harebell_dlq_inspector")


def downgrade() -> None:
    op.execute(
        "ALTER TABLE schedule_state DROP COLUMN executions, DROP COLUMN failures, "
        "DROP COLUMN last_run"
    )
