"""Failed probes of breakers, the details of open breakers, and downstreams with their ports."""

from typing import Final

from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

COLUMNS: Final = (
    "ALTER TABLE runs ADD COLUMN failed_probes integer",
    "ALTER TABLE attempts ADD COLUMN is_failed_probe boolean",
    "ALTER TABLE breakers ADD COLUMN reason text, ADD COLUMN next_probe_at timestamptz",
    "GRANT SELECT ON breakers TO harebell_dlq_inspector",
)
# A host without a port was one downstream for both schemes. A forced state keeps its effect for
# both ports. A detected state is found again.
PORTS: Final = (
    """
INSERT INTO breakers (downstream, forced, forced_at, forced_until, note, actor)
SELECT substr(downstream, 6) || port, forced, forced_at, forced_until, note, actor
FROM breakers
CROSS JOIN LATERAL unnest(
    CASE WHEN substr(downstream, 6) ~ ':[0-9]+$' THEN ARRAY['']
         ELSE ARRAY[':' || '80', ':' || '443'] END
) AS port
WHERE downstream LIKE 'http:%' AND forced IS NOT NULL
ON CONFLICT (downstream) DO NOTHING
""",
    "DELETE FROM breakers WHERE downstream LIKE 'http:%'",
)


def upgrade() -> None:
    for statement in (*COLUMNS, *PORTS):
        op.execute(statement)


def downgrade() -> None:
    op.execute("REVOKE SELECT ON breakers FROM harebell_dlq_inspector")
    op.execute("ALTER TABLE breakers DROP COLUMN reason, DROP COLUMN next_probe_at")
    op.execute("ALTER TABLE attempts DROP COLUMN is_failed_probe")
    op.execute("ALTER TABLE runs DROP COLUMN failed_probes")
