"""Dead letters are of groups of the same failure, which a person can note, mute and archive."""

from alembic import op

from harebell.kernel.db.tables import metadata

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

# Letters from before have no group yet: the inspector, which has the rule, gives them theirs.
_UP = """
ALTER TABLE dead_letters ADD COLUMN IF NOT EXISTS group_id uuid;
CREATE INDEX dead_letters_group ON dead_letters (group_id, state, dead_at DESC, id);
CREATE INDEX dead_letters_ungrouped ON dead_letters (id) WHERE group_id IS NULL;
CREATE INDEX failure_groups_page ON failure_groups (tenant, last_at DESC, id);
GRANT SELECT, INSERT, UPDATE ON failure_groups TO harebell_dlq_inspector
"""


def upgrade() -> None:
    metadata.create_all(op.get_bind(), tables=[metadata.tables["failure_groups"]])
    for statement in _UP.strip().split(";\n"):
        op.execute(statement)


def downgrade() -> None:
    op.execute("DROP TABLE failure_groups")
    op.execute("ALTER TABLE dead_letters DROP COLUMN group_id")
