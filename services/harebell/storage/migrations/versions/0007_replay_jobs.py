"""Replays that go on by themselves: what was asked for, and each letter with what became of it."""

from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None

_UP = """
CREATE TABLE replay_jobs (
    id uuid NOT NULL,
    tenant text NOT NULL,
    state text NOT NULL,
    reason text,
    asked jsonb NOT NULL,
    actor text,
    note text,
    canary integer,
    rate double precision,
    abort_ratio double precision,
    pool text,
    total integer NOT NULL,
    taken integer DEFAULT 0 NOT NULL,
    replayed integer DEFAULT 0 NOT NULL,
    succeeded integer DEFAULT 0 NOT NULL,
    failed integer DEFAULT 0 NOT NULL,
    paced_at timestamptz NOT NULL,
    due_at timestamptz,
    created_at timestamptz NOT NULL,
    changed_at timestamptz,
    changed_by text,
    finished_at timestamptz,
    PRIMARY KEY (id)
);
CREATE TABLE replay_items (
    job_id uuid NOT NULL,
    place integer NOT NULL,
    letter_id uuid NOT NULL,
    status text DEFAULT 'waiting' NOT NULL,
    outcome text,
    PRIMARY KEY (job_id, place)
);
CREATE INDEX replay_jobs_due ON replay_jobs (due_at) WHERE due_at IS NOT NULL;
CREATE INDEX replay_jobs_page ON replay_jobs (tenant, created_at DESC, id);
CREATE INDEX replay_items_undecided ON replay_items (job_id)
WHERE status = 'replayed' AND outcome IS NULL;
ALTER TABLE replay_jobs SET (fillfactor = 50);
GRANT SELECT, INSERT, UPDATE ON replay_jobs, replay_items TO harebell_dlq_inspector
"""


def upgrade() -> None:
    for statement in _UP.strip().split(";\n"):
        op.execute(statement)


def downgrade() -> None:
    op.execute("DROP TABLE replay_items, replay_jobs")
