"""The epoch of the database, which is the high part of every fencing token."""

from typing import Final

from alembic import op

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None

# The function returns the timeline of the server that executes the statement. A promotion and the
# end of an archive recovery increase it before the first write. The control file has it later.
# The base counts what the timeline cannot: a restoration into a new cluster begins at timeline 1.
SCRIPT: Final = """
CREATE TABLE ledger_epoch (
    is_only boolean PRIMARY KEY DEFAULT true CHECK (is_only),
    base integer NOT NULL DEFAULT 0 CHECK (base BETWEEN 0 AND 2000000)
);
INSERT INTO ledger_epoch DEFAULT VALUES;
CREATE FUNCTION harebell_epoch() RETURNS integer LANGUAGE sql STABLE AS $$
    SELECT base + ('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::integer
    FROM ledger_epoch
$$;
CREATE FUNCTION harebell_token(epoch integer, seq integer) RETURNS bigint
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT coalesce(epoch, 0)::bigint << 32 | seq
$$;
ALTER TABLE runs ADD COLUMN epoch integer;
GRANT SELECT ON ledger_epoch TO harebell_ticker, harebell_executor, harebell_auditor
"""


def upgrade() -> None:
    for statement in SCRIPT.split(";\n"):
        op.execute(statement)


def downgrade() -> None:
    op.execute("ALTER TABLE runs DROP COLUMN epoch")
    op.execute("DROP FUNCTION harebell_token(integer, integer), harebell_epoch()")
    op.execute("DROP TABLE ledger_epoch")
