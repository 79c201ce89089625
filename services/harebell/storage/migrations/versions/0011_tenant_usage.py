"""The counts of what tenants did and of what was refused, which `tenant.usage` shows."""

from typing import Final

from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None

# Intake reads only the tenant of dead letters, so that it can count them.
SCRIPT: Final = """
CREATE TABLE tenant_usage (
    minute timestamptz NOT NULL,
    tenant text NOT NULL,
    rule text NOT NULL,
    code text NOT NULL,
    number bigint NOT NULL,
    PRIMARY KEY (minute, tenant, rule, code)
) WITH (fillfactor = 70);
GRANT SELECT, INSERT, UPDATE ON tenant_usage TO harebell_intake;
GRANT SELECT, INSERT, UPDATE, DELETE ON tenant_usage TO harebell_ticker;
GRANT SELECT (tenant) ON dead_letters TO harebell_intake
"""


def upgrade() -> None:
    for statement in SCRIPT.split(";\n"):
        op.execute(statement)


def downgrade() -> None:
    op.execute("REVOKE SELECT (tenant) ON dead_letters FROM harebell_intake")
    op.execute("DROP TABLE tenant_usage")
