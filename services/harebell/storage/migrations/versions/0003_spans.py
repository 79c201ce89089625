"""Which instants each version of a schedule decided, and a role that may only read: for audits."""

from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

_SPANS = """
ALTER TABLE schedule_versions
    ADD COLUMN planned_from timestamptz,
    ADD COLUMN planned_to timestamptz
"""
_ROLE = """
DO $$ BEGIN
    CREATE ROLE harebell_auditor;
EXCEPTION WHEN duplicate_object OR unique_violation THEN NULL;
END $$
"""
_GRANT = """
GRANT SELECT ON schedules, schedule_versions, schedule_state, runs, attempts TO harebell_auditor
"""


def upgrade() -> None:
    for statement in (_SPANS, _ROLE, _GRANT):
        op.execute(statement)


def downgrade() -> None:
    op.execute(_GRANT.replace("GRANT", "REVOKE").replace(" TO ", " FROM "))
    op.execute("ALTER TABLE schedule_versions DROP COLUMN planned_from, DROP COLUMN planned_to")
