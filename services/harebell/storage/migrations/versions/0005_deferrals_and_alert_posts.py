"""The deferrals of breakers, the republications of tickets and the alerts for the webhook."""

from typing import Final

from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

# Only the recovery of lost tickets and of stalled overlap slots writes the columns of `runs`.
# Both columns are valid while `republished_at` equals `staged_at`.
SCRIPT: Final = """
ALTER TABLE runs ADD COLUMN republished_at timestamptz, ADD COLUMN first_staged_at timestamptz;
CREATE TABLE breaker_deferrals (
    downstream text NOT NULL,
    since timestamptz NOT NULL,
    until timestamptz,
    PRIMARY KEY (downstream, since)
);
CREATE INDEX breaker_deferrals_age ON breaker_deferrals (until);
INSERT INTO breaker_deferrals (downstream, since)
SELECT downstream, coalesce(CASE WHEN forced = 'open' THEN forced_at ELSE since END, now())
FROM breakers WHERE coalesce(forced, state) <> 'closed';
CREATE TABLE alert_posts (
    event_key text PRIMARY KEY,
    alert_key text NOT NULL,
    event json NOT NULL,
    tries integer NOT NULL DEFAULT 0,
    created_at timestamptz NOT NULL DEFAULT now(),
    next_try_at timestamptz NOT NULL DEFAULT now(),
    delivered_at timestamptz
);
CREATE INDEX alert_posts_alert ON alert_posts (alert_key);
GRANT SELECT, INSERT, UPDATE, DELETE ON breaker_deferrals TO harebell_ticker;
GRANT SELECT ON breakers, breaker_deferrals, overlap_slots TO harebell_auditor;
GRANT SELECT, INSERT, UPDATE, DELETE ON alert_posts TO harebell_dlq_inspector
"""


def upgrade() -> None:
    for statement in SCRIPT.split(";\n"):
        op.execute(statement)


def downgrade() -> None:
    op.execute("DROP TABLE alert_posts, breaker_deferrals")
    op.execute("ALTER TABLE runs DROP COLUMN republished_at, DROP COLUMN first_staged_at")
