"""Calendars with their versions, and the schedules that use each calendar."""

from typing import Final

from alembic import op

revision = "0019"
down_revision = "0018"
branch_labels = None
depends_on = None

SCRIPT: Final = """
CREATE TABLE calendar_versions (
    tenant text NOT NULL,
    name text NOT NULL,
    version integer NOT NULL,
    content json NOT NULL,
    is_deleted boolean NOT NULL,
    accepted_at timestamptz NOT NULL,
    actor text,
    note text,
    PRIMARY KEY (tenant, name, version)
);
CREATE TABLE schedule_calendars (
    tenant text NOT NULL,
    calendar text NOT NULL,
    schedule_id uuid NOT NULL REFERENCES schedules (id) ON DELETE CASCADE,
    PRIMARY KEY (tenant, calendar, schedule_id)
);
CREATE INDEX schedule_calendars_schedule ON schedule_calendars (schedule_id);
GRANT SELECT ON calendar_versions, schedule_calendars TO harebell_intake;
GRANT SELECT, INSERT, DELETE ON calendar_versions, schedule_calendars TO harebell_ticker
"""


def upgrade() -> None:
    for statement in SCRIPT.split(";\n"):
        op.execute(statement)


def downgrade() -> None:
    op.execute("DROP TABLE schedule_calendars")
    op.execute("DROP TABLE calendar_versions")
