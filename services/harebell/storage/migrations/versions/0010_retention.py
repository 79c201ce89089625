"""The inspector deletes what is too old, or too much."""

from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None

_GRANT = """
GRANT DELETE ON dead_letters, replays, replay_jobs, replay_items, failure_groups
TO harebell_dlq_inspector
"""


def upgrade() -> None:
    op.execute(_GRANT)


def downgrade() -> None:
    op.execute(_GRANT.replace("GRANT", "REVOKE").replace("TO", "FROM"))
