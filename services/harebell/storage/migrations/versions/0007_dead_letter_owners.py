"""The operators as the owners of the dead letters that name no tenant.

These dead letters may contain the payload of any tenant and belonged to the tenant `default`.
"""

from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("SELECT harebell_move_unowned_dead_letters()")
    op.execute("ALTER TABLE dead_letters VALIDATE CONSTRAINT dead_letters_tenant")


def downgrade() -> None:
    """Leave the dead letters with the operators, because other tenants must not read them."""
