"""Replays that go on by themselves: what was asked for, and each letter with what became of it."""

from alembic import op

from harebell.kernel.db.tables import metadata

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None

_UP = """
CREATE INDEX replay_jobs_due ON replay_jobs (due_at) WHERE due_at IS NOT NULL;
CREATE INDEX replay_jobs_page ON replay_jobs (tenant, created_at DESC, id);
CREATE INDEX replay_items_undecided ON replay_items (job_id)
WHERE status = 'replayed' AND outcome IS NULL;
ALTER TABLE replay_jobs SET (fillfactor = 50);
GRANT SELECT, INSERT, UPDATE ON replay_jobs, replay_items TO harebell_dlq_inspector
"""


def upgrade() -> None:
    tables = [metadata.tables[name] for name in ("replay_jobs", "replay_items")]
    metadata.create_all(op.get_bind(), tables=tables)
    for statement in _UP.strip().split(";\n"):
        op.execute(statement)


def downgrade() -> None:
    op.execute("DROP TABLE replay_items, replay_jobs")
