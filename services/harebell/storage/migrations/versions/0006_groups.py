"""Dead letters are of groups of the same failure, which a person can note, mute and archive."""

from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

# Letters from before have no group yet: the inspector, which has the rule, gives them theirs.
_UP = """
ALTER TABLE dead_letters ADD COLUMN group_id uuid;
CREATE TABLE failure_groups (
    id uuid NOT NULL,
    tenant text NOT NULL,
    target text NOT NULL,
    error_code text NOT NULL,
    message text NOT NULL,
    first_at timestamptz NOT NULL,
    last_at timestamptz NOT NULL,
    state text NOT NULL,
    muted_until timestamptz,
    note text,
    changed_at timestamptz,
    changed_by text,
    PRIMARY KEY (id)
);
CREATE INDEX failure_groups_page ON failure_groups (tenant, last_at DESC, id);
GRANT SELECT, INSERT, UPDATE ON failure_groups TO harebell_dlq_inspector
"""


def upgrade() -> None:
    for statement in _UP.strip().split(";\n"):
        op.execute(statement)


def downgrade() -> None:
    op.execute("DROP TABLE failure_groups")
    op.execute("ALTER TABLE dead_letters DROP COLUMN group_id")
