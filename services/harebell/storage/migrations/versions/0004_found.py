"""Schedules are found by name, and by a state that few of them are in, however many there are."""

from alembic import op

from harebell.storage.migrations.concurrent_index import index_concurrently

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

# Most schedules are active or completed: those are no rarer than a page, and not in the index,
# which a run's writes leave alone.
_INDEXES = {
    "schedules_name": "schedules (tenant, name) WHERE name IS NOT NULL",
    "schedule_state_halted": "schedule_state (state, schedule_id) "
    "WHERE state NOT IN ('active', 'completed')",
}


def upgrade() -> None:
    index_concurrently(op, _INDEXES)


def downgrade() -> None:
    op.execute("DROP INDEX schedules_name, schedule_state_halted")
