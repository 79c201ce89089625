"""The primary key of dead letters, which contains their tenant."""

from typing import Final

from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None

# The index and the valid constraint exist already, so no statement reads a row.
KEY: Final = """
ALTER TABLE dead_letters DROP CONSTRAINT dead_letters_tenant, DROP CONSTRAINT dead_letters_pkey,
    ADD CONSTRAINT dead_letters_key PRIMARY KEY USING INDEX dead_letters_tenant_id
"""


def upgrade() -> None:
    op.execute("ALTER TABLE dead_letters ALTER COLUMN tenant SET NOT NULL")
    op.execute(KEY)
    op.execute("DROP INDEX dead_letters_group")


def downgrade() -> None:
    raise NotImplementedError("The old key does not separate tenants. Restore a backup instead.")
