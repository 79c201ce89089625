"""The right of the auditor to read the version of the time zone data, for `harebell doctor`."""

from alembic import op

revision = "0021"
down_revision = "0020"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("GRANT SELECT ON tzdata_version TO harebell_auditor")


def downgrade() -> None:
    op.execute("REVOKE SELECT ON tzdata_version FROM harebell_auditor")
