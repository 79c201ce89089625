"""The breakers of single tenants, beside those that hold all tenants."""

from typing import Final

from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None

# Tickers of an older version use only the tables without a tenant, which keep their keys.
SCRIPT: Final = """
CREATE TABLE tenant_breakers (
    tenant text NOT NULL,
    downstream text NOT NULL,
    state text NOT NULL DEFAULT 'closed',
    since timestamptz,
    failed integer NOT NULL DEFAULT 0,
    attempts integer NOT NULL DEFAULT 0,
    reason text,
    next_probe_at timestamptz,
    forced text,
    forced_at timestamptz,
    forced_until timestamptz,
    note text,
    actor text,
    PRIMARY KEY (tenant, downstream)
);
CREATE TABLE tenant_breaker_deferrals (
    tenant text NOT NULL,
    downstream text NOT NULL,
    since timestamptz NOT NULL,
    until timestamptz,
    PRIMARY KEY (tenant, downstream, since)
);
CREATE INDEX tenant_breaker_deferrals_age ON tenant_breaker_deferrals (until);
GRANT SELECT, INSERT, UPDATE, DELETE ON tenant_breakers, tenant_breaker_deferrals
    TO harebell_ticker;
GRANT SELECT ON tenant_breakers TO harebell_intake, harebell_dlq_inspector, harebell_auditor;
GRANT SELECT ON tenant_breaker_deferrals TO harebell_auditor
"""


def upgrade() -> None:
    for statement in SCRIPT.split(";\n"):
        op.execute(statement)


def downgrade() -> None:
    op.execute("DROP TABLE tenant_breaker_deferrals, tenant_breakers")
