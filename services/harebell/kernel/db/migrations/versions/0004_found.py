"""Schedules are found by name, and by a state that few of them are in, however many there are."""

from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

# Most schedules are active or completed: those are no rarer than a page, and not in the index,
# which a run's writes leave alone.
_BY_NAME = "CREATE INDEX schedules_name ON schedules (tenant, name) WHERE name IS NOT NULL"
_HALTED = """
CREATE INDEX schedule_state_halted ON schedule_state (state, schedule_id)
WHERE state NOT IN ('active', 'completed')
"""


def upgrade() -> None:
    op.execute(_BY_NAME)
    op.execute(_HALTED)


def downgrade() -> None:
    op.execute("DROP INDEX schedules_name, schedule_state_halted")
