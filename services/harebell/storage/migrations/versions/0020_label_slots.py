"""Label slots: the runs of each concurrency label that execute or wait."""

from alembic import op

revision = "0020"
down_revision = "0019"
branch_labels = None
depends_on = None

_TABLE = """
CREATE TABLE label_slots (
    schedule_id    uuid NOT NULL,
    scheduled_for  timestamptz NOT NULL,
    tenant         text NOT NULL,
    label          text NOT NULL,
    run_limit      int NOT NULL,
    due_at         timestamptz NOT NULL,
    role           text NOT NULL,
    since          timestamptz NOT NULL,
    reserved_until timestamptz,
    PRIMARY KEY (schedule_id, scheduled_for)
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0)
"""
_INDEX = """
CREATE INDEX label_slots_line
    ON label_slots (tenant, label, role, due_at, scheduled_for, schedule_id)
"""


def upgrade() -> None:
    op.execute(_TABLE)
    op.execute(_INDEX)
    op.execute(
        "GRANT SELECT, INSERT, UPDATE, DELETE ON label_slots TO harebell_ticker, harebell_executor"
    )
    op.execute("GRANT SELECT ON label_slots TO harebell_auditor")


def downgrade() -> None:
    op.execute("DROP TABLE label_slots")
