"""A dead letter can be edited: a copy takes its place, whose run calls another target."""

from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None

_UP = """
ALTER TABLE dead_letters
    ADD COLUMN target json,
    ADD COLUMN edited_from uuid,
    ADD COLUMN edited_at timestamptz,
    ADD COLUMN edited_by text,
    ADD COLUMN edit_note text
"""


def upgrade() -> None:
    op.execute(_UP)


def downgrade() -> None:
    op.execute(
        "ALTER TABLE dead_letters DROP COLUMN target, DROP COLUMN edited_from, "
        "DROP COLUMN edited_at, DROP COLUMN edited_by, DROP COLUMN edit_note"
    )
