"""Who dropped a dead letter and why; a run that is replayed is an open run of its schedule."""

from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

_DROPS = """
ALTER TABLE dead_letters
    ADD COLUMN dropped_at timestamptz,
    ADD COLUMN dropped_by text,
    ADD COLUMN drop_note text
"""
_GRANT = "GRANT SELECT, UPDATE (open_runs) ON schedule_state TO harebell_dlq_inspector"


def upgrade() -> None:
    op.execute(_DROPS)
    op.execute(_GRANT)


def downgrade() -> None:
    op.execute(_GRANT.replace("GRANT", "REVOKE").replace(" TO ", " FROM "))
    op.execute(
        "ALTER TABLE dead_letters DROP COLUMN dropped_at, DROP COLUMN dropped_by, "
        "DROP COLUMN drop_note"
    )
