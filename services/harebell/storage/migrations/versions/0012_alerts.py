"""When somebody was last told of what is wrong at the desk; when a replay last moved."""

from alembic import op

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None

_UP = """
CREATE TABLE alerts (
    tenant text NOT NULL,
    verb text NOT NULL,
    subject text NOT NULL,
    told_at timestamptz NOT NULL,
    PRIMARY KEY (tenant, verb, subject)
);
GRANT SELECT, INSERT, UPDATE, DELETE ON alerts TO harebell_dlq_inspector;
ALTER TABLE replay_jobs ADD COLUMN moved_at timestamptz
"""


def upgrade() -> None:
    for statement in _UP.strip().split(";\n"):
        op.execute(statement)


def downgrade() -> None:
    op.execute("ALTER TABLE replay_jobs DROP COLUMN moved_at")
    op.execute("DROP TABLE alerts")
