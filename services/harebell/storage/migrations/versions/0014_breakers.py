"""Circuit breakers: what dispatchers found of whom targets call, and what people force them to."""

from alembic import op

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None

# `since`: of what dispatchers found; `forced_at`: of the last order, also of one to end the force.
_BREAKERS = """
CREATE TABLE breakers (
    downstream text PRIMARY KEY,
    state text NOT NULL DEFAULT 'closed',
    since timestamptz,
    failed integer NOT NULL DEFAULT 0,
    attempts integer NOT NULL DEFAULT 0,
    forced text,
    forced_at timestamptz,
    forced_until timestamptz,
    note text,
    actor text
)
"""
_GRANTS = (
    "GRANT SELECT, INSERT, UPDATE, DELETE ON breakers TO harebell_ticker",
    "GRANT SELECT ON breakers TO harebell_intake",
)


def upgrade() -> None:
    for statement in (_BREAKERS, *_GRANTS):
        op.execute(statement)


def downgrade() -> None:
    op.execute("DROP TABLE breakers")
