"""A function that names the holders of old snapshots, and the version of the schema for audits.

The view `pg_stat_activity` hides the start of a transaction from a role without rights on its
session. The function runs with the rights of the owner and shows no text of a statement.
"""

from typing import Final

from alembic import op

revision = "0016"
down_revision = "0015"
branch_labels = None
depends_on = None

# A snapshot of another database prevents no cleanup in this one. PostgreSQL ignores the snapshots
# of VACUUM itself. A session that only writes has no snapshot, but its transaction id counts too.
SNAPSHOT_HOLDERS: Final = """
CREATE FUNCTION harebell_snapshot_holders(
    OUT kind text, OUT pid integer, OUT application_name text, OUT username text,
    OUT state text, OUT since timestamptz, OUT horizon text, OUT transactions integer
) RETURNS SETOF record LANGUAGE sql STABLE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp AS $$
    SELECT 'session', a.pid, a.application_name, a.usename::text, a.state, a.xact_start,
        CASE WHEN coalesce(age(a.backend_xmin), -1) >= coalesce(age(a.backend_xid), -1)
            THEN a.backend_xmin ELSE a.backend_xid END::text,
        greatest(age(a.backend_xmin), age(a.backend_xid))
    FROM pg_stat_activity a
    WHERE (a.datname = current_database() OR a.datname IS NULL)
        AND (a.backend_xmin IS NOT NULL OR a.backend_xid IS NOT NULL)
        AND a.pid <> pg_backend_pid()
        AND NOT EXISTS (SELECT FROM pg_stat_progress_vacuum v WHERE v.pid = a.pid)
    UNION ALL
    SELECT 'prepared', NULL, p.gid, p.owner::text, NULL, p.prepared, p.transaction::text,
        age(p.transaction)
    FROM pg_prepared_xacts p WHERE p.database = current_database()
    UNION ALL
    SELECT 'slot', s.active_pid, s.slot_name::text, NULL, NULL, NULL, s.xmin::text, age(s.xmin)
    FROM pg_replication_slots s WHERE s.xmin IS NOT NULL
    ORDER BY 8 DESC LIMIT 20
$$
"""
FUNCTION: Final = "harebell_snapshot_holders()"


def upgrade() -> None:
    op.execute(SNAPSHOT_HOLDERS)
    op.execute(f"REVOKE EXECUTE ON FUNCTION {FUNCTION} FROM PUBLIC")
    op.execute(f"GRANT EXECUTE ON FUNCTION {FUNCTION} TO harebell_ticker, harebell_auditor")
    op.execute("GRANT SELECT ON alembic_version TO harebell_auditor")


def downgrade() -> None:
    op.execute("REVOKE SELECT ON alembic_version FROM harebell_auditor")
    op.execute(f"DROP FUNCTION {FUNCTION}")
