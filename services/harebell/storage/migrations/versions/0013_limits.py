"""Limits: what has been counted of starts, one row an account."""

from alembic import op

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None

# Rewritten with every start that is counted: room for it on the page, and vacuumed by count.
_LIMITS = """
CREATE TABLE limits (
    account text PRIMARY KEY,
    places timestamptz[] NOT NULL DEFAULT '{}',
    starts timestamptz[] NOT NULL DEFAULT '{}',
    over_at timestamptz
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.02,
        autovacuum_vacuum_cost_delay = 0)
"""
_GRANTS = (
    "GRANT SELECT, INSERT, UPDATE ON limits TO harebell_executor",
    "GRANT SELECT, DELETE ON limits TO harebell_ticker",
)


def upgrade() -> None:
    op.execute(_LIMITS)
    for grant in _GRANTS:
        op.execute(grant)


def downgrade() -> None:
    op.execute("DROP TABLE limits")
