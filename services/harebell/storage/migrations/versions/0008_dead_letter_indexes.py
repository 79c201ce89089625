"""Indexes of dead letters by tenant, for the primary key, the retention and the counts of groups.

A dead letter stays unique by its id alone, because older services insert `ON CONFLICT (id)`.
"""

from alembic import op

from harebell.storage.migrations.concurrent_index import index_concurrently

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    index_concurrently(
        op,
        {
            "dead_letters_tenant_id": "dead_letters (tenant, id)",
            "dead_letters_id": "dead_letters (id)",
        },
        is_unique=True,
    )
    index_concurrently(
        op,
        {
            "dead_letters_kept": "dead_letters (kept_at)",
            "dead_letters_kept_of_tenant": (
                "dead_letters (tenant, kept_at DESC, dead_at DESC, id)"
            ),
            "dead_letters_of_group": (
                "dead_letters (group_id, state, dead_at DESC, id) INCLUDE (tenant)"
            ),
        },
    )


def downgrade() -> None:
    op.execute(
        "DROP INDEX dead_letters_tenant_id, dead_letters_id, dead_letters_kept, "
        "dead_letters_kept_of_tenant, dead_letters_of_group"
    )
