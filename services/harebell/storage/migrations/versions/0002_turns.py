"""Turns: the open runs of schedules that do not run over themselves."""

from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

# Small, and short-lived rows: vacuumed by count, not by share.
_TURNS = """
CREATE TABLE turns (
    schedule_id uuid NOT NULL,
    scheduled_for timestamptz NOT NULL,
    role text NOT NULL,
    since timestamptz NOT NULL,
    PRIMARY KEY (schedule_id, scheduled_for)
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02,
        autovacuum_vacuum_cost_delay = 0)
"""
_GRANTS = (
    "GRANT SELECT, INSERT, UPDATE, DELETE ON turns TO harebell_executor, harebell_ticker",
    # whoever ends a run makes the ticket of the one that waited for it
    "GRANT SELECT ON schedule_versions TO harebell_executor",
)


def upgrade() -> None:
    op.execute(_TURNS)
    for grant in _GRANTS:
        op.execute(grant)


def downgrade() -> None:
    op.execute("DROP TABLE turns")
    op.execute("REVOKE SELECT ON schedule_versions FROM harebell_executor")
